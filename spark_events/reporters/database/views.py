"""Views for operators: runs, uptime, failures and their causes, incidents, violated limits.

FLIP-481 lists these uses of events. SQLite and PostgreSQL share the same SQL. ``{…}`` marks the parts that differ: the
current time, functions, and the access to JSON attributes. ``spark-events report`` computes the same numbers.
"""

from __future__ import annotations

import re

from spark_events.reporters.database.runs_and_uptime import RUNS, STATUS_OF_RUNS, UPTIME

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

# A lost application has no JobFailureEvent, so the view includes its LOST event. An event of the user's program may
# have no fingerprint.
_FAILURES = f"""
SELECT observed_at, observed_ts_millis, severity, entity, app_id, app_name, query_id, query_name, batch_id, error_type,
  {{failure.label.type}} AS failure_type,
  {{failure.class}} AS failure_class,
  {{failure.root_cause}} AS root_cause,
  {{failure.location}} AS location,
  CAST({{failure.will_retry}} AS TEXT) IN ('true', '1') AS will_retry,
  coalesce({{failure.fingerprint}}, {{first_line}}, error_type || ': ' || body) AS cause_key,
  {{incident.key}} AS incident_key,
  coalesce({{incident.role}}, CASE WHEN severity_number >= 17 THEN 'alarm' ELSE 'member' END) AS incident_role,
  body, event_id
FROM spark_events
WHERE name = 'JobFailureEvent'
UNION ALL
SELECT observed_at, observed_ts_millis, severity, entity, app_id, app_name, query_id, query_name, batch_id, 'LOST',
  'SYSTEM', NULL, body, NULL, CAST('false' AS TEXT) = 'true', 'LOST', {{incident.key}},
  coalesce({{incident.role}}, 'alarm'), body, event_id
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
# - ``coalesce(e.name, '')`` prevents SQLite from reading all commits by name instead of the commits of one run.
# - ``edge`` also contains the ends of runs, because SQLite would compute a joined view of runs once per incident.
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
  SELECT entity, subject, app_id, app_attempt_id, app_name, query_run_id, status, ended_ts_millis AS ended,
    CASE WHEN entity = 'query' THEN (
      SELECT observed_ts_millis FROM spark_events AS e
      WHERE e.query_run_id = spark_events_runs.query_run_id AND coalesce(e.name, '') = 'BatchCommitEvent'
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
  UNION ALL
  SELECT 'run', app_id, coalesce(app_attempt_id, ''), NULL, query_run_id, NULL, NULL, NULL, ended, NULL, NULL, NULL,
    NULL, NULL
  FROM run
), followed AS (
  SELECT edge.*,
    coalesce(
      min(CASE WHEN status IN ('ON_TIME', 'closed') THEN at END) OVER (
        PARTITION BY name, app_id, attempt, query_run_id, rule, work
        ORDER BY at DESC ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
      ),
      max(CASE WHEN name = 'run' THEN at END) OVER (PARTITION BY app_id, attempt, query_run_id)
    ) AS closed
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
SELECT coalesce(app_name, app_id) || '/' || coalesce(query_name || '/', '') ||
    coalesce('overdue ' || rule, 'reporter ' || reporter),
  CASE name WHEN 'DeadlineStatusChangeEvent' THEN 'overdue' ELSE 'breaker' END,
  app_name, query_name, severity, body, NULL, at, at, closed, coalesce(closed, {now}) - at, closed IS NULL, 1
FROM followed
WHERE (status = 'OVERDUE' AND coalesce(old, 'ON_TIME') = 'ON_TIME')
  OR (status = 'open' AND coalesce(old, 'closed') = 'closed')
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
    "spark_events_runs": RUNS,
    "spark_events_uptime": UPTIME,
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
