"""Overview of many applications; :mod:`spark_events.sql.dialects` explains the placeholders.

This week is the seven days before ``{now}``; last week is the seven days before these. A run counts in the week in
which it ended, or in this week if it has not ended. Core-hours come from the last ``ApplicationSummaryEvent`` of a run.
A run is bad if it is FAILED, LOST or UNKNOWN, or ENDED with an alarm of its own, because an event log often lacks the
exit code. Lost core-hours are those of bad runs, and of failed and killed task attempts of other runs.
"""

from __future__ import annotations

#: Milliseconds of a week.
WEEK = 604_800_000

# One row per run of an application in the last two weeks. Summaries are cumulative, so the largest is the last.
RUNS_OF_FLEET = f"""
SELECT assessed.*, CASE WHEN is_bad = 1 THEN core_hours
  ELSE {{least}}(coalesce(core_hours, 0), coalesce(retried_ms, 0) / 3600000.0) END AS lost_core_hours
FROM (SELECT run.name, run.environment, run.app_id, coalesce(run.app_attempt_id, '') AS attempt, run.status,
  CASE WHEN run.status IN ('FAILED', 'LOST', 'UNKNOWN') OR (run.status = 'ENDED' AND reported.alarms > 0)
    THEN 1 ELSE 0 END AS is_bad,
  run.started_ts_millis AS started, run.ended_ts_millis AS ended,
  CASE WHEN run.ended_ts_millis > {{now}} - {WEEK} OR run.ended_ts_millis IS NULL THEN 1 ELSE 0 END AS is_new,
  reported.team, reported.core_hours, reported.cost, reported.retried_ms
FROM spark_events_runs AS run LEFT JOIN (
  SELECT app_id, coalesce(app_attempt_id, '') AS attempt, max({{spark.tag.team}}) AS team,
    max(CAST({{spark.summary.core_hours}} AS DOUBLE PRECISION)) AS core_hours,
    max(CAST({{spark.summary.cost}} AS DOUBLE PRECISION)) AS cost,
    max(CAST({{spark.summary.retried_ms}} AS BIGINT)) AS retried_ms,
    sum(CASE WHEN name = 'JobFailureEvent' AND severity_number >= 17 THEN 1 ELSE 0 END) AS alarms
  FROM spark_events
  WHERE name = 'ApplicationSummaryEvent'
    OR (name IN ('JobStatusChangeEvent', 'JobFailureEvent') AND entity = 'application')
  GROUP BY app_id, coalesce(app_attempt_id, '')
) AS reported ON reported.app_id = run.app_id AND reported.attempt = coalesce(run.app_attempt_id, '')
WHERE run.entity = 'application' AND run.started_ts_millis <= {{now}}
  AND coalesce(run.ended_ts_millis, {{now}}) > {{now}} - {2 * WEEK}
) AS assessed
"""

# One row per application, by name and environment. ``changes``: how often a run failed after a good one, or the
# reverse.
APPLICATIONS_OF_FLEET = f"""
WITH run AS ({RUNS_OF_FLEET}), in_order AS (
  SELECT run.*, CASE WHEN ended IS NOT NULL AND is_bad <> lag(is_bad)
      OVER (PARTITION BY name, environment ORDER BY started, app_id) THEN 1 ELSE 0 END AS is_change,
    row_number() OVER (PARTITION BY name, environment ORDER BY started DESC, app_id DESC) AS position
  FROM run
)
SELECT name, environment, max(team) AS team, max(CASE WHEN position = 1 THEN app_id END) AS app_id,
  max(CASE WHEN position = 1 THEN status END) AS status, max(started) AS started,
  sum(is_new) AS runs, sum(is_new * is_bad) AS failed,
  sum(1 - is_new) AS runs_before, sum((1 - is_new) * is_bad) AS failed_before,
  sum(is_change) AS changes,
  sum(CASE WHEN is_new = 1 THEN core_hours END) AS core_hours,
  sum(CASE WHEN is_new = 0 THEN core_hours END) AS core_hours_before,
  sum(CASE WHEN is_new = 1 THEN cost END) AS cost,
  sum(CASE WHEN is_new = 1 THEN lost_core_hours END) AS lost_core_hours,
  sum(CASE WHEN is_new = 1 AND is_bad = 1 THEN lost_core_hours END) AS failed_core_hours,
  avg(CASE WHEN is_new = 1 AND is_bad = 0 THEN ended - started END) AS mean_ms,
  avg(CASE WHEN is_new = 0 AND is_bad = 0 THEN ended - started END) AS mean_before_ms
FROM in_order GROUP BY name, environment
"""

# Alarms by the class of the failure, per application.
FAILURES_OF_FLEET = f"""
SELECT failure_class, app_name AS name, environment,
  sum(CASE WHEN observed_ts_millis > {{now}} - {WEEK} THEN 1 ELSE 0 END) AS failures,
  sum(CASE WHEN observed_ts_millis > {{now}} - {WEEK} THEN 0 ELSE 1 END) AS failures_before
FROM (
  SELECT app_name, environment, observed_ts_millis,
    coalesce(failure_class, CASE WHEN error_type = 'LOST' THEN 'LOST' ELSE 'UNKNOWN' END) AS failure_class
  FROM spark_events_failures
  WHERE incident_role = 'alarm' AND observed_ts_millis > {{now}} - {2 * WEEK} AND observed_ts_millis <= {{now}}
) AS alarm
GROUP BY failure_class, app_name, environment
"""
