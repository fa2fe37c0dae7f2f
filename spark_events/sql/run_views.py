"""Runs and uptime; :mod:`spark_events.sql.dialects` explains the placeholders.

- An application is identified by its name and environment, and a query by its application and its name; by its id only
  if it has no name. A run in one environment says nothing about another.
- A query's run ends at the latest when its application ends.
- A run without an end is UNKNOWN and ends with its last event if a later run exists; otherwise it is still active.
- Time after a run that is FAILED, LOST or UNKNOWN is downtime until another run starts. Time after an orderly end is
  neither uptime nor downtime. Runs may overlap: uptime is the time in which at least one run is active.
"""

from __future__ import annotations

#: Condition for rows of status changes, from which runs are computed; also the condition of the index on these rows.
STATUS_OF_RUNS = "name = 'JobStatusChangeEvent' AND entity IN ('application', 'query')"

# One row per run of an application or query:
# - An outcome such as FINISHED takes precedence over ENDED, which the replay of an earlier version has added.
# - A query's run ends with its application. If a run has no end and a later run of the same subject exists, the run is
#   UNKNOWN and ends with its last event.
# - ``bounds``: overlapping runs count once. ``through`` is twice the time until which the subject has run, plus 1 if
#   the run that lasted longest failed, so that one maximum yields both.
# - Window functions instead of joins relate queries and applications, because SQLite would scan a joined subquery once
#   per run.
RUNS = f"""
WITH change AS (
  SELECT entity, app_id, coalesce(app_attempt_id, '') AS attempt, coalesce(app_name, app_id) AS app_name, query_id,
    query_run_id, query_name, status, observed_ts_millis AS ts, {{deployment.environment.name}} AS environment,
    row_number() OVER (
      PARTITION BY entity, app_id, coalesce(app_attempt_id, ''), query_run_id
      ORDER BY CASE coalesce(status, 'RUNNING') WHEN 'RUNNING' THEN 2 WHEN 'ENDED' THEN 1 ELSE 0 END,
        observed_ts_millis DESC, sequence DESC
    ) AS position
  FROM spark_events WHERE {STATUS_OF_RUNS}
), reported AS (
  SELECT entity, app_id, attempt, query_run_id, max(app_name) AS app_name,
    coalesce(max(environment), '') AS environment,
    CASE entity WHEN 'query' THEN coalesce(max(app_name), '') || '/' || coalesce(max(query_name), max(query_id))
      ELSE max(app_name) END AS subject,
    CASE entity WHEN 'query' THEN coalesce(max(query_name), max(query_id)) ELSE max(app_name) END AS name,
    min(CASE WHEN status = 'RUNNING' THEN ts END) AS started,
    max(CASE WHEN status <> 'RUNNING' THEN ts END) AS ended,
    max(CASE WHEN status <> 'RUNNING' AND position = 1 THEN status END) AS status
  FROM change GROUP BY entity, app_id, attempt, query_run_id
), placed AS (
  SELECT entity, app_id, attempt, query_run_id, app_name, environment, subject, name, ended, status,
    started IS NOT NULL AS start_known, ended < started AS ends_before_start,
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
), in_order AS (
  SELECT placed.*, max(started) OVER (PARTITION BY entity, subject, environment) AS latest FROM placed
), of_application AS (
  SELECT in_order.*,
    max(CASE WHEN entity = 'application' THEN CASE WHEN ended IS NULL AND latest > last THEN last ELSE ended END END)
      OVER same AS application_ended,
    max(CASE WHEN entity = 'application' THEN
      CASE WHEN ended IS NULL AND latest > last THEN 'UNKNOWN' ELSE status END END)
      OVER same AS application_status,
    max(CASE WHEN entity = 'query' THEN 1 ELSE 0 END) OVER (PARTITION BY app_id) AS is_streaming
  FROM in_order
  WINDOW same AS (PARTITION BY app_id, attempt)
), over AS (
  SELECT entity, subject, name, app_name, app_id, attempt, query_run_id, started, last, latest, is_streaming,
    environment, start_known, ends_before_start,
    {{greatest}}(started, coalesce(ended, application_ended)) AS ended,
    coalesce(status, application_status) AS status
  FROM of_application
), run AS (
  SELECT entity, subject, name, app_name, app_id, attempt, query_run_id, started, last, is_streaming,
    environment, start_known, ends_before_start,
    CASE WHEN status IS NULL AND latest > last THEN last WHEN status IS NOT NULL THEN ended END AS ended,
    CASE WHEN status IS NULL AND latest > last THEN 'UNKNOWN' ELSE coalesce(status, 'RUNNING') END AS status
  FROM over
), bounds AS (
  SELECT run.*,
    max(is_streaming) OVER (PARTITION BY entity, subject, environment) AS is_long_running,
    lead(started) OVER same AS next,
    max(coalesce(ended, {{now}})) OVER before AS covered,
    max(2 * coalesce(ended, {{now}}) + CASE WHEN status IN ('FAILED', 'LOST', 'UNKNOWN') THEN 1 ELSE 0 END)
      OVER (same ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS through,
    max(coalesce(ended, {{now}})) OVER (same ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS reached,
    row_number() OVER (
      PARTITION BY entity, subject, environment
      ORDER BY CASE WHEN ended IS NULL THEN 0 ELSE 1 END, ended DESC, started DESC
    ) AS position
  FROM run
  WINDOW same AS (PARTITION BY entity, subject, environment ORDER BY started, last, app_id, query_run_id),
    before AS (
      PARTITION BY entity, subject, environment ORDER BY started, last, app_id, query_run_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
), measured AS (
  SELECT gap.*,
    {{greatest}}(started, coalesce(covered, started)) AS up_from,
    {{greatest}}(started, coalesce(covered, started), coalesce(ended, {{now}})) AS up_until,
    CASE WHEN is_down = 1 AND resumed > reached THEN reached END AS down_from,
    CASE WHEN is_down = 1 AND resumed > reached THEN resumed END AS down_until
  FROM (
    SELECT bounds.*, coalesce(next, {{now}}) AS resumed,
      is_long_running * (through - 2 * reached) AS is_down
    FROM bounds
  ) AS gap
)
SELECT entity, subject, name, app_name, app_id, nullif(attempt, '') AS app_attempt_id, query_run_id, status,
  started AS started_ts_millis,
  ended AS ended_ts_millis,
  up_from AS up_from_ts_millis, up_until AS up_until_ts_millis,
  coalesce(down_from, up_until) AS down_from_ts_millis, coalesce(down_until, up_until) AS down_until_ts_millis,
  up_until - up_from AS uptime_ms,
  coalesce(down_until - down_from, 0) AS downtime_ms,
  is_long_running = 1 AS is_long_running,
  position = 1 AS is_latest, start_known, coalesce(ends_before_start, 1 = 0) AS ends_before_start,
  last AS last_ts_millis, environment
FROM measured
"""

# Per application or query of an environment, and per window that ends now. Batch applications are never down. Silence
# is no uptime. A percentage says something only after a restart.
UPTIME = """
WITH period AS (
  SELECT '24h' AS period, {now} - 86400000 AS since
  UNION ALL SELECT '7d', {now} - 604800000
  UNION ALL SELECT '30d', {now} - 2592000000
  UNION ALL SELECT 'all', 0
), counted AS (
  SELECT period, run.entity, run.subject, run.environment, name, app_name, is_long_running, is_latest,
    CASE WHEN is_latest AND silent.since_ts_millis IS NOT NULL THEN 'SILENT' ELSE status END AS status,
    CASE WHEN coalesce(ended_ts_millis, {now}) >= since THEN 1 ELSE 0 END AS is_inside,
    {greatest}(0, {least}(up_until_ts_millis, coalesce(silent.since_ts_millis, up_until_ts_millis))
      - {greatest}(up_from_ts_millis, since)) AS up,
    {greatest}(0, down_until_ts_millis - {greatest}(down_from_ts_millis, since)) AS down,
    started_ts_millis, since
  FROM spark_events_runs AS run CROSS JOIN period
  LEFT JOIN spark_events_silent AS silent ON silent.entity = run.entity AND silent.subject = run.subject
    AND silent.environment = run.environment
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
  CASE WHEN max(CASE WHEN is_long_running THEN 1 ELSE 0 END) = 1 AND sum(is_inside) > 1
    THEN CAST(100.0 * sum(up) / nullif(sum(up + down), 0) AS DOUBLE PRECISION) END AS availability_percent,
  environment
FROM counted
GROUP BY period, entity, subject, environment
"""
