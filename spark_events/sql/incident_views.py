"""Failures, their causes, incidents and violated limits; :mod:`spark_events.sql.dialects` explains the placeholders.

Events name their incident and their role in it. The rules below are for events without them, of earlier releases and of
other programs.
"""

from __future__ import annotations

from spark_events.sql.run_views import STATUS_OF_RUNS

# A lost application has no JobFailureEvent, so the view includes its LOST event. An event of the user's program may
# have no fingerprint.
FAILURES = f"""
SELECT observed_at, observed_ts_millis, severity, entity, app_id, app_name, query_id, query_run_id, query_name,
  batch_id, error_type, failure_type, failure_class, root_cause, location, will_retry, cause_key, incident_id,
  incident_key,
  CASE WHEN incident_role IS NOT NULL THEN incident_role
    WHEN entity = 'application' AND max(CASE WHEN entity = 'query' THEN 1 ELSE 0 END)
      OVER (PARTITION BY app_id, cause_key) = 1 THEN 'consequence'
    WHEN entity NOT IN ('application', 'query') AND max(CASE WHEN entity IN ('application', 'query') THEN 1 ELSE 0 END)
      OVER (PARTITION BY app_id, cause_key) = 1 THEN 'member'
    WHEN severity_number >= 17 AND NOT will_retry THEN 'alarm' ELSE 'member' END AS incident_role,
  body, event_id, environment
FROM (
  SELECT observed_at, observed_ts_millis, severity, severity_number, entity, app_id, app_name, query_id, query_run_id,
    query_name, batch_id, error_type,
    {{failure.label.type}} AS failure_type,
    {{failure.class}} AS failure_class,
    {{failure.root_cause}} AS root_cause,
    {{failure.location}} AS location,
    coalesce(CAST({{failure.will_retry}} AS TEXT), '') IN ('true', '1') AS will_retry,
    coalesce({{failure.fingerprint}}, {{first_line}}, error_type || ': ' || body) AS cause_key,
    {{incident.id}} AS incident_id, {{incident.key}} AS incident_key, {{incident.role}} AS incident_role,
    body, event_id, coalesce({{deployment.environment.name}}, '') AS environment
  FROM spark_events
  WHERE name = 'JobFailureEvent'
  UNION ALL
  SELECT observed_at, observed_ts_millis, severity, 21, entity, app_id, app_name, query_id, query_run_id, query_name,
    batch_id, 'LOST', 'SYSTEM', NULL, body, NULL, 1 = 0, 'LOST',
    {{incident.id}}, {{incident.key}}, {{incident.role}}, body, event_id,
    coalesce({{deployment.environment.name}}, '')
  FROM spark_events
  WHERE {STATUS_OF_RUNS} AND entity = 'application' AND status = 'LOST'
) AS failure
"""

FAILURES_BY_CAUSE = """
SELECT cause_key,
  max(CASE WHEN position = 1 THEN error_type END) AS error_type,
  max(CASE WHEN position = 1 THEN root_cause END) AS root_cause,
  max(CASE WHEN position = 1 THEN failure_type END) AS failure_type,
  max(CASE WHEN position = 1 THEN failure_class END) AS failure_class,
  max(CASE WHEN position = 1 THEN location END) AS location,
  count(*) AS failures,
  sum(CASE WHEN incident_role = 'alarm' THEN 1 ELSE 0 END) AS alarms,
  count(DISTINCT app_name || '/' || environment) AS applications,
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
# of its queries commits, even in a run that has also committed before the failure. A failed job recovers when a job
# closes its incident. Overdue work recovers when it is on time again, or when its run ends. A run in one environment
# closes no incident of another.
# A circuit breaker recovers when it closes, or when the application ends.
# - ``coalesce(e.name, '')`` prevents SQLite from reading all commits by name instead of the commits of one run.
# - ``edge`` also contains the ends of runs, because SQLite would compute a joined view of runs once per incident.
INCIDENTS = """
WITH alarm AS (
  SELECT 'failure' AS kind, app_id, coalesce(app_name, app_id) AS app_name, query_name, query_run_id, cause_key,
    error_type, failure_class, root_cause, location, severity, event_id,
    CASE WHEN coalesce(query_name, query_id) IS NULL THEN 'application' ELSE 'query' END AS entity,
    coalesce(coalesce(app_name, app_id, '') || '/' || coalesce(query_name, query_id), app_name, app_id) AS subject,
    coalesce(
      incident_key,
      coalesce('environment=' || nullif(environment, '') || '/', '') || coalesce(app_name, app_id) || '/' ||
        coalesce('query=' || coalesce(query_name, query_id) || '/', '') || 'failure'
    ) AS incident_key, incident_id,
    observed_ts_millis AS ts, environment
  FROM spark_events_failures WHERE incident_role = 'alarm'
), run AS (
  SELECT entity, subject, app_id, app_attempt_id, app_name, query_run_id, status, ended_ts_millis AS ended,
    environment,
    CASE WHEN entity = 'query' THEN (
      SELECT observed_ts_millis FROM spark_events AS e
      WHERE e.query_run_id = spark_events_runs.query_run_id AND coalesce(e.name, '') = 'BatchCommitEvent'
      ORDER BY observed_ts_millis LIMIT 1
    ) END AS committed
  FROM spark_events_runs
), success AS (
  SELECT entity, subject, committed AS ts, NULL AS incident_key, environment FROM run WHERE committed IS NOT NULL
  UNION ALL
  SELECT 'application', app_name, committed, NULL, environment FROM run WHERE committed IS NOT NULL
  UNION ALL
  SELECT 'application', alarm.subject, (
    SELECT e.observed_ts_millis FROM spark_events AS e
    WHERE e.query_run_id = run.query_run_id AND coalesce(e.name, '') = 'BatchCommitEvent'
      AND e.observed_ts_millis > alarm.ts
    ORDER BY e.observed_ts_millis LIMIT 1
  ), NULL, alarm.environment
  FROM alarm JOIN run ON run.app_name = alarm.app_name AND run.app_id <> alarm.app_id
    AND run.environment = alarm.environment
  WHERE alarm.entity = 'application' AND run.committed <= alarm.ts AND (run.ended IS NULL OR run.ended > alarm.ts)
  UNION ALL
  SELECT entity, subject, ended, NULL, environment FROM run WHERE status = 'FINISHED'
  UNION ALL
  SELECT NULL, NULL, observed_ts_millis, {incident.key}, NULL FROM spark_events
  WHERE name = 'JobStatusChangeEvent' AND entity = 'job' AND {incident.role} = 'recovery'
), moment AS (
  SELECT entity, subject, ts, 1 AS is_alarm, kind, app_id, app_name, query_name, query_run_id, cause_key, error_type,
    failure_class, root_cause, location, severity, incident_key, incident_id, event_id, environment
  FROM alarm
  UNION ALL
  SELECT entity, subject, ts, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, incident_key, NULL,
    NULL, environment
  FROM success
), failure AS (
  SELECT followed.*,
    CASE WHEN recovered IS NULL OR recovered_by_key < recovered THEN recovered_by_key ELSE recovered END AS closed
  FROM (
    SELECT moment.*,
      min(CASE WHEN is_alarm = 0 THEN ts END) OVER (
        PARTITION BY entity, subject, environment
        ORDER BY ts DESC ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
      ) AS recovered,
      min(CASE WHEN is_alarm = 0 THEN ts END) OVER (
        PARTITION BY incident_key ORDER BY ts DESC ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
      ) AS recovered_by_key
    FROM moment
  ) AS followed
  WHERE is_alarm = 1
), placed AS (
  SELECT failure.*, row_number() OVER (PARTITION BY incident_key, closed ORDER BY ts DESC, event_id) AS position
  FROM failure
), edge AS (
  SELECT name, app_id, coalesce(app_attempt_id, '') AS attempt, app_name, query_run_id, query_name, query_id, body,
    severity, event_id, observed_ts_millis AS ts, status, {spark.status.old} AS old, {spark.deadline.rule} AS rule,
    {incident.key} AS incident_key, {spark.deadline.location} AS location,
    coalesce({spark.events.reporter.name}, '') || '/' || coalesce({spark.deadline.subject}, '') || '/' ||
      coalesce(CASE WHEN {spark.deadline.subject} = 'job' THEN CAST({spark.job.id} AS TEXT) END, '') || '/' ||
      coalesce(CAST({spark.deadline.source} AS TEXT), '') || '/' || coalesce({spark.deadline.topic}, '') AS work,
    {spark.events.reporter.name} AS reporter, coalesce({deployment.environment.name}, '') AS environment
  FROM spark_events WHERE name IN ('DeadlineStatusChangeEvent', 'ReporterStatusChangeEvent')
  UNION ALL
  SELECT 'run', app_id, coalesce(app_attempt_id, ''), NULL, query_run_id, NULL, NULL, NULL, NULL, NULL, ended, NULL,
    NULL, NULL, NULL, NULL, NULL, NULL, environment
  FROM run
), followed AS (
  SELECT edge.*,
    coalesce(
      min(CASE WHEN status IN ('ON_TIME', 'closed') THEN ts END) OVER (
        PARTITION BY name, app_id, attempt, query_run_id, rule, work
        ORDER BY ts DESC ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
      ),
      max(CASE WHEN name = 'run' THEN ts END) OVER (PARTITION BY app_id, attempt, query_run_id),
      max(CASE WHEN name = 'run' AND query_run_id IS NULL THEN ts END) OVER (PARTITION BY app_id, attempt)
    ) AS closed
  FROM edge
)
SELECT incident_key, kind, max(CASE WHEN position = 1 THEN app_name END) AS app_name,
  max(CASE WHEN position = 1 THEN query_name END) AS query_name,
  max(CASE WHEN position = 1 THEN severity END) AS severity,
  max(CASE WHEN position = 1 THEN root_cause END) AS cause,
  max(CASE WHEN position = 1 THEN location END) AS location,
  min(ts) AS opened_ts_millis, max(ts) AS last_ts_millis, closed AS closed_ts_millis,
  coalesce(closed, {now}) - min(ts) AS duration_ms,
  closed IS NULL AS is_open,
  count(*) AS alarms,
  max(CASE WHEN position = 1 THEN entity END) AS entity, max(CASE WHEN position = 1 THEN subject END) AS subject,
  max(CASE WHEN position = 1 THEN app_id END) AS app_id,
  max(CASE WHEN position = 1 THEN query_run_id END) AS query_run_id,
  max(CASE WHEN position = 1 THEN error_type END) AS error_type,
  max(CASE WHEN position = 1 THEN cause_key END) AS cause_key,
  max(CASE WHEN position = 1 THEN incident_id END) AS incident_id,
  max(CASE WHEN position = 1 THEN event_id END) AS event_id,
  max(CASE WHEN position = 1 THEN environment END) AS environment,
  max(CASE WHEN position = 1 THEN failure_class END) AS failure_class
FROM placed GROUP BY incident_key, kind, closed
UNION ALL
SELECT coalesce(
    incident_key,
    coalesce('environment=' || nullif(environment, '') || '/', '') || coalesce(app_name, app_id) || '/' ||
      coalesce(query_name || '/', '') || coalesce('overdue ' || rule, 'reporter ' || reporter)
  ),
  CASE name WHEN 'DeadlineStatusChangeEvent' THEN 'overdue' ELSE 'breaker' END,
  coalesce(app_name, app_id), query_name, severity, body, location, ts, ts, closed, coalesce(closed, {now}) - ts,
  closed IS NULL, 1,
  CASE WHEN coalesce(query_name, query_id) IS NULL THEN 'application' ELSE 'query' END,
  coalesce(coalesce(app_name, app_id, '') || '/' || coalesce(query_name, query_id), app_name, app_id), app_id,
  query_run_id, NULL, NULL, event_id, event_id, environment, NULL
FROM followed
WHERE (status = 'OVERDUE' AND coalesce(old, 'ON_TIME') = 'ON_TIME')
  OR (status = 'open' AND coalesce(old, 'closed') = 'closed')
"""

# Each event contains its limit. An event may cover several batches, so compare their mean duration with the limit.
SLA_VIOLATIONS = """
SELECT observed_at, observed_ts_millis, 'commit' AS kind, app_id, app_name, query_id, query_name, batch_id, input_rows,
  duration_ms / coalesce(nullif(batches, 0), 1) AS duration_ms,
  CAST({spark.batch.limit_ms} AS BIGINT) AS limit_ms,
  severity, body, event_id, coalesce({deployment.environment.name}, '') AS environment
FROM spark_events
WHERE name = 'BatchCommitEvent' AND severity_number >= 13
UNION ALL
SELECT observed_at, observed_ts_millis, {spark.deadline.rule}, app_id, app_name, query_id, query_name, batch_id, NULL,
  CAST({spark.deadline.elapsed_ms} AS BIGINT), CAST({spark.deadline.limit_ms} AS BIGINT), severity, body, event_id,
  coalesce({deployment.environment.name}, '')
FROM spark_events
WHERE name = 'DeadlineStatusChangeEvent' AND severity_number >= 13 AND status = 'OVERDUE'
  AND coalesce({spark.status.old}, 'ON_TIME') = 'ON_TIME'
"""
