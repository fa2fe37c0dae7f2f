"""Views for operators: runs, uptime, failures and their causes, incidents, violated limits.

FLIP-481 lists these uses of events. SQLite and PostgreSQL share the same SQL. ``{…}`` marks the parts that differ: the
current time, functions, and the access to JSON attributes. ``spark-events report`` computes the same numbers.
"""

from __future__ import annotations

import re

#: Condition for rows of status changes, from which runs are computed; also the condition of the index on these rows.
STATUS_OF_RUNS = "name = 'JobStatusChangeEvent' AND entity IN ('application', 'query')"

_FUNCTIONS = {
    "postgresql": {
        "now": "CAST(extract(epoch FROM now()) * 1000 AS BIGINT)",
        "greatest": "greatest",
        "first_line": "left(split_part({failure.root_cause}, chr(10), 1), 300)",
    },
    "sqlite": {
        "now": "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
        "greatest": "max",
        "first_line": "substr({failure.root_cause}, 1,"
        " coalesce(nullif(instr({failure.root_cause}, char(10)), 0), 301) - 1)",
    },
}
_ATTRIBUTE = {"postgresql": r"attributes ->> '\1'", "sqlite": r"""json_extract(attributes, '$."\1"')"""}

# One row per run of an application or query:
# - An outcome such as FINISHED takes precedence over ENDED, which the replay of an earlier version has added.
# - A query's run ends with its application. If a run has no end and a later run of the same subject exists, the run is
#   UNKNOWN and ends with its last event.
# - ``bounds``: overlapping runs count once. ``through`` is twice the time until which the subject has run, plus 1 if
#   the run that lasted longest failed, so that one maximum yields both.
_RUNS = f"""
WITH change AS (
  SELECT entity, app_id, coalesce(app_attempt_id, '') AS attempt, coalesce(app_name, app_id) AS app_name, query_id,
    query_run_id, query_name, status, observed_ts_millis AS at,
    row_number() OVER (
      PARTITION BY entity, app_id, coalesce(app_attempt_id, ''), query_run_id
      ORDER BY CASE status WHEN 'RUNNING' THEN 2 WHEN 'ENDED' THEN 1 ELSE 0 END, observed_ts_millis DESC, sequence DESC
    ) AS position
  FROM spark_events WHERE {STATUS_OF_RUNS}
), reported AS (
  SELECT entity, app_id, attempt, query_run_id, max(app_name) AS app_name,
    CASE entity WHEN 'query' THEN coalesce(max(query_id), max(query_name)) ELSE max(app_name) END AS subject,
    CASE entity WHEN 'query' THEN coalesce(max(query_name), max(query_id)) ELSE max(app_name) END AS name,
    min(CASE WHEN status = 'RUNNING' THEN at END) AS started,
    max(CASE WHEN status <> 'RUNNING' THEN at END) AS ended,
    max(CASE WHEN status <> 'RUNNING' AND position = 1 THEN status END) AS status
  FROM change GROUP BY entity, app_id, attempt, query_run_id
), placed AS (
  SELECT entity, app_id, attempt, query_run_id, app_name, subject, name, ended, status,
    CASE WHEN started IS NOT NULL THEN started WHEN entity = 'query' THEN
      (SELECT min(observed_ts_millis) FROM spark_events AS e WHERE e.query_run_id = reported.query_run_id)
    ELSE
      (SELECT min(observed_ts_millis) FROM spark_events AS e
       WHERE e.app_id = reported.app_id AND coalesce(e.app_attempt_id, '') = reported.attempt)
    END AS started,
    CASE WHEN ended IS NOT NULL THEN ended WHEN entity = 'query' THEN
      (SELECT max(observed_ts_millis) FROM spark_events AS e WHERE e.query_run_id = reported.query_run_id)
    ELSE
      (SELECT max(observed_ts_millis) FROM spark_events AS e
       WHERE e.app_id = reported.app_id AND coalesce(e.app_attempt_id, '') = reported.attempt)
    END AS last
  FROM reported
), application AS (
  SELECT app_id, attempt,
    CASE WHEN ended IS NULL AND latest > last THEN last ELSE ended END AS ended,
    CASE WHEN ended IS NULL AND latest > last THEN 'UNKNOWN' ELSE status END AS status
  FROM (SELECT placed.*, max(started) OVER (PARTITION BY subject) AS latest FROM placed WHERE entity = 'application')
    AS of_application
), over AS (
  SELECT placed.entity, placed.subject, placed.name, placed.app_name, placed.app_id, placed.attempt,
    placed.query_run_id, placed.started, placed.last,
    max(placed.started) OVER (PARTITION BY placed.entity, placed.subject) AS latest,
    {{greatest}}(placed.started, coalesce(placed.ended, application.ended)) AS ended,
    coalesce(placed.status, application.status) AS status
  FROM placed
  LEFT JOIN application ON placed.entity = 'query'
    AND application.app_id = placed.app_id AND application.attempt = placed.attempt
), run AS (
  SELECT over.entity, subject, name, app_name, over.app_id, attempt, query_run_id, started, last,
    CASE WHEN over.entity = 'query' OR streaming.app_id IS NOT NULL THEN 1 ELSE 0 END AS is_streaming,
    CASE WHEN status IS NULL AND latest > last THEN last WHEN status IS NOT NULL THEN ended END AS ended,
    CASE WHEN status IS NULL AND latest > last THEN 'UNKNOWN' ELSE coalesce(status, 'RUNNING') END AS status
  FROM over
  LEFT JOIN (SELECT DISTINCT app_id FROM reported WHERE entity = 'query') AS streaming
    ON streaming.app_id = over.app_id
), bounds AS (
  SELECT run.*,
    max(is_streaming) OVER (PARTITION BY entity, subject) AS is_long_running,
    lead(started) OVER same AS next,
    max(2 * coalesce(ended, {{now}})) OVER before AS covered,
    max(2 * coalesce(ended, {{now}}) + CASE WHEN status IN ('FAILED', 'LOST', 'UNKNOWN') THEN 1 ELSE 0 END)
      OVER (same ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS through,
    row_number() OVER (PARTITION BY entity, subject ORDER BY CASE WHEN ended IS NULL THEN 0 ELSE 1 END, started DESC)
      AS position
  FROM run
  WINDOW same AS (PARTITION BY entity, subject ORDER BY started, last, app_id, query_run_id),
    before AS (
      PARTITION BY entity, subject ORDER BY started, last, app_id, query_run_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
), measured AS (
  SELECT gap.*,
    {{greatest}}(started, coalesce(covered / 2, started)) AS up_from,
    {{greatest}}(started, coalesce(covered / 2, started), coalesce(ended, {{now}})) AS up_until,
    CASE WHEN is_down = 1 AND resumed > reached THEN reached END AS down_from,
    CASE WHEN is_down = 1 AND resumed > reached THEN resumed END AS down_until
  FROM (
    SELECT bounds.*, through / 2 AS reached, coalesce(next, {{now}}) AS resumed,
      is_long_running * (through - 2 * (through / 2)) AS is_down
    FROM bounds
  ) AS gap
)
SELECT entity, subject, name, app_name, app_id, query_run_id, status,
  started AS started_ts_millis,
  ended AS ended_ts_millis,
  up_from AS up_from_ts_millis, up_until AS up_until_ts_millis,
  coalesce(down_from, up_until) AS down_from_ts_millis, coalesce(down_until, up_until) AS down_until_ts_millis,
  up_until - up_from AS uptime_ms,
  coalesce(down_until - down_from, 0) AS downtime_ms,
  is_long_running = 1 AS is_long_running,
  position = 1 AS is_latest
FROM measured
"""

# Per application or query, and per window that ends now. Batch applications are never down.
_UPTIME = """
WITH period AS (
  SELECT '24h' AS period, {now} - 86400000 AS since
  UNION ALL SELECT '7d', {now} - 604800000
  UNION ALL SELECT '30d', {now} - 2592000000
  UNION ALL SELECT 'all', 0
), counted AS (
  SELECT period, entity, subject, name, app_name, is_long_running, is_latest, status,
    CASE WHEN coalesce(ended_ts_millis, {now}) >= since THEN 1 ELSE 0 END AS is_inside,
    {greatest}(0, up_until_ts_millis - {greatest}(up_from_ts_millis, since)) AS up,
    {greatest}(0, down_until_ts_millis - {greatest}(down_from_ts_millis, since)) AS down,
    started_ts_millis, since
  FROM spark_events_runs CROSS JOIN period
  WHERE coalesce(ended_ts_millis, {now}) >= since OR down_until_ts_millis >= since OR is_latest
)
SELECT period, entity, subject, max(name) AS name, max(app_name) AS app_name,
  CASE WHEN max(CASE WHEN is_long_running THEN 1 ELSE 0 END) = 1 THEN 'long-running' ELSE 'batch' END AS kind,
  max(CASE WHEN is_latest THEN status END) AS status,
  sum(is_inside) AS runs,
  sum(CASE WHEN status IN ('FAILED', 'LOST', 'UNKNOWN') THEN is_inside ELSE 0 END) AS failed_runs,
  min({greatest}(started_ts_millis, since)) AS since_ts_millis,
  CAST(sum(up) AS BIGINT) AS uptime_ms,
  CAST(sum(down) AS BIGINT) AS downtime_ms,
  CASE WHEN max(CASE WHEN is_long_running THEN 1 ELSE 0 END) = 1
    THEN CAST(100.0 * sum(up) / nullif(sum(up + down), 0) AS DOUBLE PRECISION) END AS availability_percent
FROM counted
GROUP BY period, entity, subject
"""

# A lost application has no JobFailureEvent, so the view includes its LOST event. Failures of schema version 1 have no
# fingerprint.
_FAILURES = f"""
SELECT observed_at, observed_ts_millis, severity, entity, app_id, app_name, query_id, query_name, batch_id, error_type,
  {{failure.label.type}} AS failure_type,
  {{failure.class}} AS failure_class,
  {{failure.root_cause}} AS root_cause,
  {{failure.location}} AS location,
  CAST({{failure.will_retry}} AS TEXT) IN ('true', '1') AS will_retry,
  coalesce({{failure.fingerprint}}, {{first_line}}, error_type || ': ' || body) AS cause_key,
  {{incident.key}} AS incident_key,
  coalesce({{incident.role}}, CASE WHEN severity_number >= 17 THEN 'alarm' ELSE 'survived' END) AS incident_role,
  body, event_id
FROM spark_events
WHERE name = 'JobFailureEvent'
UNION ALL
SELECT observed_at, observed_ts_millis, severity, entity, app_id, app_name, query_id, query_name, batch_id, 'LOST',
  'SYSTEM', NULL, body, NULL, CAST('false' AS TEXT) = 'true', 'LOST', {{incident.key}}, 'alarm', body, event_id
FROM spark_events
WHERE {STATUS_OF_RUNS} AND entity = 'application' AND status = 'LOST'
"""

_FAILURES_BY_CAUSE = """
SELECT cause_key,
  max(CASE WHEN position = 1 THEN error_type END) AS error_type,
  max(CASE WHEN position = 1 THEN root_cause END) AS root_cause,
  max(CASE WHEN position = 1 THEN failure_type END) AS failure_type,
  max(CASE WHEN position = 1 THEN failure_class END) AS failure_class,
  max(CASE WHEN position = 1 THEN location END) AS location,
  count(*) AS failures,
  sum(CASE WHEN incident_role = 'alarm' THEN 1 ELSE 0 END) AS alarms,
  count(DISTINCT app_name) AS applications,
  max(CASE WHEN position = 1 THEN app_name END) AS app_name,
  max(CASE WHEN position = 1 THEN query_name END) AS query_name,
  min(observed_ts_millis) AS first_ts_millis,
  max(observed_ts_millis) AS last_ts_millis
FROM (
  SELECT spark_events_failures.*,
    row_number() OVER (PARTITION BY cause_key ORDER BY observed_ts_millis DESC, event_id) AS position
  FROM spark_events_failures
) AS failure
GROUP BY cause_key
"""

# One row per incident, from the first alarm with its key until the recovery. A failure of a query recovers when the
# query commits in a later run, or finishes. A failure of an application recovers when one of its runs finishes, or one
# of its queries commits. Overdue work recovers when it is on time again, or when its run ends. A circuit breaker
# recovers when it closes, or when the application ends.
_INCIDENTS = """
WITH alarm AS (
  SELECT 'failure' AS kind, app_id, app_name, query_name, cause_key, root_cause, location, severity,
    CASE WHEN query_id IS NULL THEN 'application' ELSE 'query' END AS entity,
    coalesce(query_id, app_name, app_id) AS subject,
    coalesce(
      incident_key, coalesce(app_name, app_id) || '/' || coalesce(query_name || '/', query_id || '/', '') || 'failure'
    ) AS incident_key,
    observed_ts_millis AS at
  FROM spark_events_failures WHERE incident_role = 'alarm'
), run AS (
  SELECT entity, subject, app_id, app_name, query_run_id, status, ended_ts_millis AS ended,
    CASE WHEN entity = 'query' THEN (
      SELECT observed_ts_millis FROM spark_events AS e
      WHERE e.query_run_id = spark_events_runs.query_run_id AND e.name = 'BatchCommitEvent'
      ORDER BY observed_ts_millis LIMIT 1
    ) END AS committed
  FROM spark_events_runs
), moment AS (
  SELECT entity, subject, at, 1 AS is_alarm, kind, app_id, app_name, query_name, cause_key, root_cause, location,
    severity, incident_key
  FROM alarm
  UNION ALL
  SELECT entity, subject, committed, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
  FROM run WHERE committed IS NOT NULL
  UNION ALL
  SELECT 'application', app_name, committed, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
  FROM run WHERE committed IS NOT NULL
  UNION ALL
  SELECT entity, subject, ended, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
  FROM run WHERE status = 'FINISHED'
), failure AS (
  SELECT kind, app_name, query_name, root_cause, location, severity, incident_key, at, recovered AS closed,
    row_number() OVER (PARTITION BY incident_key, recovered ORDER BY at DESC) AS position
  FROM (
    SELECT moment.*, min(CASE WHEN is_alarm = 0 THEN at END)
      OVER (PARTITION BY entity, subject ORDER BY at DESC ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS recovered
    FROM moment
  ) AS followed
  WHERE is_alarm = 1
), edge AS (
  SELECT name, app_id, coalesce(app_attempt_id, '') AS attempt, app_name, query_run_id, query_name, body, severity,
    observed_ts_millis AS at, status, {spark.status.old} AS old, {spark.deadline.rule} AS rule,
    coalesce({spark.events.reporter.name}, '') || '/' || coalesce({spark.deadline.subject}, '') || '/' ||
      coalesce(CASE WHEN {spark.deadline.subject} = 'job' THEN CAST({spark.job.id} AS TEXT) END, '') || '/' ||
      coalesce(CAST({spark.deadline.source} AS TEXT), '') || '/' || coalesce({spark.deadline.topic}, '') AS work,
    {spark.events.reporter.name} AS reporter
  FROM spark_events WHERE name IN ('DeadlineStatusChangeEvent', 'ReporterStatusChangeEvent')
), followed AS (
  SELECT edge.*, min(CASE WHEN status IN ('ON_TIME', 'closed') THEN at END) OVER (
      PARTITION BY name, app_id, attempt, query_run_id, rule, work
      ORDER BY at DESC ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS recovered
  FROM edge
)
SELECT incident_key, kind, max(CASE WHEN position = 1 THEN app_name END) AS app_name,
  max(CASE WHEN position = 1 THEN query_name END) AS query_name,
  max(CASE WHEN position = 1 THEN severity END) AS severity,
  max(CASE WHEN position = 1 THEN root_cause END) AS cause,
  max(CASE WHEN position = 1 THEN location END) AS location,
  min(at) AS opened_ts_millis, max(at) AS last_ts_millis, closed AS closed_ts_millis,
  coalesce(closed, {now}) - min(at) AS duration_ms,
  closed IS NULL AS is_open,
  count(*) AS alarms
FROM failure GROUP BY incident_key, kind, closed
UNION ALL
SELECT coalesce(followed.app_name, followed.app_id) || '/' || coalesce(followed.query_name || '/', '') ||
    coalesce('overdue ' || rule, 'reporter ' || reporter),
  CASE followed.name WHEN 'DeadlineStatusChangeEvent' THEN 'overdue' ELSE 'breaker' END,
  followed.app_name, followed.query_name, severity, body, NULL, at, at,
  coalesce(recovered, run.ended_ts_millis), coalesce(recovered, run.ended_ts_millis, {now}) - at,
  coalesce(recovered, run.ended_ts_millis) IS NULL, 1
FROM followed
LEFT JOIN spark_events_runs AS run ON run.app_id = followed.app_id
  AND run.entity = CASE WHEN followed.query_run_id IS NULL THEN 'application' ELSE 'query' END
  AND coalesce(run.query_run_id, '') = coalesce(followed.query_run_id, '')
WHERE (followed.status = 'OVERDUE' AND coalesce(old, 'ON_TIME') = 'ON_TIME')
  OR (followed.status = 'open' AND coalesce(old, 'closed') = 'closed')
"""

# Each event contains its limit. An event may cover several batches, so compare their mean duration with the limit.
_SLA_VIOLATIONS = """
SELECT observed_at, observed_ts_millis, 'commit' AS kind, app_id, app_name, query_id, query_name, batch_id, input_rows,
  duration_ms / coalesce(nullif(batches, 0), 1) AS duration_ms,
  CAST({spark.batch.limit_ms} AS BIGINT) AS limit_ms,
  severity, body, event_id
FROM spark_events
WHERE name = 'BatchCommitEvent' AND severity_number >= 13
UNION ALL
SELECT observed_at, observed_ts_millis, {spark.deadline.rule}, app_id, app_name, query_id, query_name, batch_id, NULL,
  CAST({spark.deadline.elapsed_ms} AS BIGINT), CAST({spark.deadline.limit_ms} AS BIGINT), severity, body, event_id
FROM spark_events
WHERE name = 'DeadlineStatusChangeEvent' AND severity_number >= 13 AND status = 'OVERDUE'
  AND coalesce({spark.status.old}, 'ON_TIME') = 'ON_TIME'
"""

#: View definitions, each after the views that it uses.
_TEXTS = {
    "spark_events_runs": _RUNS,
    "spark_events_uptime": _UPTIME,
    "spark_events_failures": _FAILURES,
    "spark_events_failures_by_cause": _FAILURES_BY_CAUSE,
    "spark_events_incidents": _INCIDENTS,
    "spark_events_sla_violations": _SLA_VIOLATIONS,
}
NAMES = tuple(_TEXTS)


def definitions(dialect: str) -> list[str]:
    """Return the CREATE VIEW statements in order of their dependencies."""
    return [f"CREATE VIEW {name} AS {_in(dialect, text)}" for name, text in _TEXTS.items()]


def _in(dialect: str, text: str) -> str:
    for name, function in _FUNCTIONS[dialect].items():
        text = text.replace(f"{{{name}}}", function)
    return re.sub(r"\{([a-z_.]+)\}", _ATTRIBUTE[dialect], text)
