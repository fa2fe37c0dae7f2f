"""Views for operators: uptime and downtime, failures, slow commits.

FLIP-481 names these uses of events. One SQL text serves both databases, except for the current time and the access
to JSON attributes.
"""

from __future__ import annotations

import re

_NOW = {
    "postgresql": "CAST(extract(epoch FROM now()) * 1000 AS BIGINT)",
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
}
_ATTRIBUTE = {"postgresql": r"attributes ->> '\1'", "sqlite": r"""json_extract(attributes, '$."\1"')"""}

# One row per run of an application or query. A query's run ends with its application at the latest. A run without an
# end that was followed by another run is UNKNOWN and ends with the last event of its application. Time after an orderly
# end is not downtime.
_RUNS = """
WITH reported AS (
  SELECT entity, app_id, coalesce(app_attempt_id, '') AS attempt, query_run_id,
    CASE entity WHEN 'query' THEN query_id ELSE max(app_name) END AS subject,
    CASE entity WHEN 'query' THEN max(query_name) ELSE max(app_name) END AS name,
    min(CASE WHEN status = 'RUNNING' THEN observed_ts_millis END) AS started,
    max(CASE WHEN status <> 'RUNNING' THEN observed_ts_millis END) AS ended,
    max(CASE WHEN status <> 'RUNNING' THEN status END) AS status
  FROM spark_events
  WHERE name = 'JobStatusChangeEvent' AND entity IN ('application', 'query')
  GROUP BY entity, app_id, coalesce(app_attempt_id, ''), query_id, query_run_id
), seen AS (
  SELECT app_id, coalesce(app_attempt_id, '') AS attempt, max(observed_ts_millis) AS last
  FROM spark_events GROUP BY app_id, coalesce(app_attempt_id, '')
), run AS (
  SELECT reported.entity, reported.subject, reported.name, reported.app_id, reported.query_run_id, reported.started,
    coalesce(reported.ended, application.ended) AS ended,
    coalesce(reported.status, application.status) AS status,
    seen.last,
    lead(reported.started) OVER (PARTITION BY reported.entity, reported.subject ORDER BY reported.started) AS next
  FROM reported
  LEFT JOIN reported AS application
    ON application.entity = 'application' AND application.app_id = reported.app_id
      AND application.attempt = reported.attempt
  LEFT JOIN seen ON seen.app_id = reported.app_id AND seen.attempt = reported.attempt
  WHERE reported.started IS NOT NULL
), known AS (
  SELECT entity, subject, name, app_id, query_run_id, started, next,
    CASE WHEN ended IS NULL AND next IS NOT NULL THEN last ELSE ended END AS ended,
    CASE WHEN ended IS NULL AND next IS NOT NULL THEN 'UNKNOWN' ELSE coalesce(status, 'RUNNING') END AS status
  FROM run
)
SELECT entity, subject, name, app_id, query_run_id, status,
  started AS started_ts_millis,
  ended AS ended_ts_millis,
  CASE WHEN coalesce(ended, {now}) > started THEN coalesce(ended, {now}) - started ELSE 0 END AS uptime_ms,
  CASE WHEN status IN ('FAILED', 'LOST', 'UNKNOWN') AND coalesce(next, {now}) > ended
    THEN coalesce(next, {now}) - ended ELSE 0 END AS downtime_ms,
  next IS NULL AS is_latest
FROM known
"""

_UPTIME = """
SELECT entity, subject,
  max(name) AS name,
  max(CASE WHEN is_latest THEN status END) AS status,
  count(*) AS runs,
  sum(CASE WHEN status IN ('FAILED', 'LOST', 'UNKNOWN') THEN 1 ELSE 0 END) AS failed_runs,
  min(started_ts_millis) AS since_ts_millis,
  CAST(sum(uptime_ms) AS BIGINT) AS uptime_ms,
  CAST(sum(downtime_ms) AS BIGINT) AS downtime_ms,
  CAST(100.0 * sum(uptime_ms) / nullif(sum(uptime_ms + downtime_ms), 0) AS DOUBLE PRECISION) AS availability_percent
FROM spark_events_runs
GROUP BY entity, subject
"""

_FAILURES = """
SELECT observed_at, observed_ts_millis, severity, entity, app_id, app_name, query_id, query_name, batch_id, error_type,
  {failure.label.type} AS failure_type,
  {failure.root_cause} AS root_cause,
  {failure.location} AS location,
  CAST({failure.will_retry} AS TEXT) IN ('true', '1') AS will_retry,
  body, event_id
FROM spark_events
WHERE name = 'JobFailureEvent'
"""

# An event may cover several batches, so compare the mean duration. The driver sets WARN by
# events.batch-commit.max-duration.
_SLOW_COMMITS = """
SELECT observed_at, observed_ts_millis, app_id, app_name, query_id, query_name, batch_id, input_rows,
  duration_ms / coalesce(nullif(batches, 0), 1) AS duration_ms,
  threshold_ms, severity, event_id
FROM (
  SELECT commits.*, coalesce(own.slow_commit_ms, everyone.slow_commit_ms) AS threshold_ms
  FROM spark_events AS commits
  LEFT JOIN spark_events_thresholds AS own ON own.query_name = commits.query_name
  LEFT JOIN spark_events_thresholds AS everyone ON everyone.query_name = '*'
  WHERE commits.name = 'BatchCommitEvent'
) AS commits
WHERE severity_number >= 13 OR duration_ms / coalesce(nullif(batches, 0), 1) > threshold_ms
"""

#: View definitions, each after the views that it uses.
_TEXTS = {
    "spark_events_runs": _RUNS,
    "spark_events_uptime": _UPTIME,
    "spark_events_failures": _FAILURES,
    "spark_events_slow_commits": _SLOW_COMMITS,
}
NAMES = tuple(_TEXTS)


def definitions(dialect: str) -> list[str]:
    """Return the CREATE VIEW statements in order of their dependencies."""
    return [f"CREATE VIEW {name} AS {_in(dialect, text)}" for name, text in _TEXTS.items()]


def _in(dialect: str, text: str) -> str:
    return re.sub(r"\{([a-z_.]+)\}", _ATTRIBUTE[dialect], text.replace("{now}", _NOW[dialect]))
