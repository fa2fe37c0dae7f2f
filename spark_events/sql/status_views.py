"""What is wrong now; :mod:`spark_events.sql.dialects` explains the placeholders.

One row per problem. An application or query of an environment has one problem at a time, the first of these that holds;
the row also tells of the crash loop and of the silence that it hides, and since when its latest run is active:

- ``failure``: its open incidents;
- ``ended``: its last run is FAILED, LOST or UNKNOWN, and no event names the failure;
- ``silent``: it is silent itself, as ``spark_events_silent`` defines it;
- ``crash-loop``: three of its runs failed within the last hour, or it was down for more than a tenth of it;
- ``overdue`` and ``breaker``: other open incidents.

A failure is one problem: an application that ended or is in a crash loop has none if a query's incident is open, and
its queries that ended with it have none. ``spark_events_sources`` tells whether events still arrive.
"""

from __future__ import annotations

#: Age of the newest event after which a source is stale, in milliseconds.
STALE_MS = 900_000

SOURCES = f"""
SELECT {{source}} AS source, max(observed_ts_millis) AS newest_ts_millis,
  {{now}} - max(observed_ts_millis) AS age_ms, {{now}} - max(observed_ts_millis) > {STALE_MS} AS is_stale
FROM spark_events {{by_source}}
"""

_BAD = "('FAILED', 'LOST', 'UNKNOWN')"
_MINUTE, _HOUR, _DAY = 60_000, 3_600_000, 86_400_000
#: Number of intervals from which the usual interval is computed.
_RECENT = 20

# The median gap between two events: one event with a wrong time hides no silence.
_MEDIAN = """SELECT min(gap) FROM (
        SELECT gap, row_number() OVER (ORDER BY gap) AS place, count(*) OVER () AS gaps
        FROM (SELECT ts - lag(ts) OVER (ORDER BY ts) AS gap"""
_OF_GAPS = """) AS differences WHERE gap IS NOT NULL
      ) AS ordered WHERE 2 * place >= gaps"""

# One row per application or query of an environment that has not ended and about which nothing is known since a time:
# it is silent, its application is silent, or all its sources are stale. From then on, nothing is uptime. Nothing was
# reported for ten times the usual interval: for a query, no commit, and at least 5 minutes; for an application, no
# event, and at least 5 minutes with queries or heartbeats, 15 without.
SILENT = f"""
WITH running AS (
  SELECT entity, subject, app_name, environment, app_id, query_run_id, is_long_running
  FROM spark_events_runs WHERE is_latest AND ended_ts_millis IS NULL
), recent AS (
  SELECT running.*,
    CASE WHEN entity = 'query' THEN (
      SELECT count(*) FROM (
        SELECT observed_ts_millis AS ts FROM spark_events AS e
        WHERE e.query_run_id = running.query_run_id AND coalesce(e.name, '') = 'BatchCommitEvent'
        ORDER BY observed_ts_millis DESC LIMIT {_RECENT + 1}
      ) AS commits
    ) END AS commits,
    CASE WHEN entity = 'query' THEN (
      {_MEDIAN} FROM (
        SELECT observed_ts_millis AS ts FROM spark_events AS e
        WHERE e.query_run_id = running.query_run_id AND coalesce(e.name, '') = 'BatchCommitEvent'
        ORDER BY observed_ts_millis DESC LIMIT {_RECENT + 1}
      ) AS commits {_OF_GAPS}
    ) ELSE (
      {_MEDIAN} FROM (
        SELECT observed_ts_millis AS ts FROM spark_events AS e WHERE e.app_id = running.app_id
        ORDER BY observed_ts_millis DESC LIMIT {_RECENT + 1}
      ) AS events {_OF_GAPS}
    ) END AS usual,
    CASE WHEN entity = 'query' THEN (
      SELECT observed_ts_millis FROM spark_events AS e
      WHERE e.query_run_id = running.query_run_id AND coalesce(e.name, '') = 'BatchCommitEvent'
      ORDER BY observed_ts_millis DESC LIMIT 1
    ) ELSE (
      SELECT observed_ts_millis FROM spark_events AS e WHERE e.app_id = running.app_id
      ORDER BY observed_ts_millis DESC LIMIT 1
    ) END AS last,
    EXISTS (
      SELECT 1 FROM spark_events AS e WHERE e.app_id = running.app_id AND e.name = 'HeartbeatEvent'
    ) AS has_heartbeats
  FROM running
), silent AS (
  SELECT entity, subject, environment, app_id, last AS since, usual FROM recent
  WHERE last IS NOT NULL AND (entity = 'application' OR commits > 2)
    AND {{now}} - last > CASE WHEN usual IS NULL THEN {_DAY}
      ELSE {{greatest}}(10 * usual, CASE WHEN entity = 'query' OR is_long_running OR has_heartbeats THEN {5 * _MINUTE}
        ELSE {15 * _MINUTE} END) END
), stale AS (
  SELECT app_name, environment, max(newest_ts_millis) AS since
  FROM (
    SELECT DISTINCT coalesce(app_name, app_id) AS app_name, coalesce(environment, '') AS environment,
      {{source}} AS source
    FROM {{with_sources}}
  ) AS placed
  JOIN spark_events_sources ON spark_events_sources.source = placed.source
  GROUP BY app_name, environment HAVING min(CASE WHEN is_stale THEN 1 ELSE 0 END) = 1
), quiet AS (
  SELECT entity, subject, environment, entity AS whose, since, usual FROM silent
  UNION ALL
  SELECT running.entity, running.subject, running.environment, 'application', silent.since, NULL
  FROM running JOIN silent ON silent.app_id = running.app_id AND silent.entity = 'application'
  UNION ALL
  SELECT running.entity, running.subject, running.environment, 'source', stale.since, NULL
  FROM running JOIN stale ON stale.app_name = running.app_name
    AND stale.environment = running.environment
)
SELECT entity, subject, min(since) AS since_ts_millis, environment,
  min(whose) AS whose_silence, CAST(max(usual) AS BIGINT) AS usual_ms
FROM quiet GROUP BY entity, subject, environment
"""

# The failure of a run is its last one that Spark does not retry. ``failed_runs`` and ``down_ms`` are of the last hour.
NOW = f"""
WITH latest AS (
  SELECT entity, subject, name, app_name, environment, app_id, query_run_id, status, started_ts_millis AS started,
    ended_ts_millis AS ended
  FROM spark_events_runs WHERE is_latest
), silent AS (
  SELECT latest.*, since_ts_millis AS since, usual_ms FROM latest
  JOIN spark_events_silent AS found ON found.entity = latest.entity AND found.subject = latest.subject
    AND found.environment = latest.environment AND found.whose_silence = latest.entity
), failing AS (
  SELECT entity, subject, environment, max(name) AS name, max(app_name) AS app_name,
    max(CASE WHEN position = 1 THEN app_id END) AS app_id,
    sum(CASE WHEN status IN {_BAD} AND ended_ts_millis > {{now}} - {_HOUR} THEN 1 ELSE 0 END) AS failed,
    sum(CASE WHEN down_until_ts_millis > {{now}} - {_HOUR}
      THEN down_until_ts_millis - {{greatest}}(down_from_ts_millis, {{now}} - {_HOUR}) ELSE 0 END) AS down,
    min(CASE WHEN status IN {_BAD} AND ended_ts_millis > {{now}} - {_HOUR} THEN ended_ts_millis END) AS since,
    max(CASE WHEN status IN {_BAD} THEN ended_ts_millis END) AS last
  FROM (
    SELECT spark_events_runs.*, row_number() OVER (
      PARTITION BY entity, subject, environment
      ORDER BY CASE WHEN status IN {_BAD} THEN 0 ELSE 1 END, ended_ts_millis DESC, app_id
    ) AS position
    FROM spark_events_runs
    WHERE ended_ts_millis > {{now}} - {_HOUR} OR down_until_ts_millis > {{now}} - {_HOUR}
  ) AS run
  GROUP BY entity, subject, environment
), looping AS (
  SELECT failing.* FROM failing WHERE failed >= 3 OR down > {_HOUR // 10}
), failed AS (
  SELECT placed.*, row_number() OVER (
    PARTITION BY entity, subject, environment, app_id ORDER BY observed_ts_millis DESC, event_id
  ) AS position
  FROM (
    SELECT 'application' AS entity, coalesce(app_name, app_id) AS subject, environment, app_id, root_cause, error_type,
      failure_class, event_id, observed_ts_millis
    FROM spark_events_failures WHERE NOT will_retry
    UNION ALL
    SELECT 'query', coalesce(app_name, app_id, '') || '/' || coalesce(query_name, query_id), environment, app_id,
      root_cause, error_type, failure_class, event_id, observed_ts_millis
    FROM spark_events_failures WHERE NOT will_retry AND coalesce(query_name, query_id) IS NOT NULL
  ) AS placed
), problem AS (
  SELECT kind, CASE kind WHEN 'failure' THEN 1 ELSE 5 END AS rank, entity, subject,
    coalesce(query_name, app_name, subject) AS name, app_name, app_id, query_run_id, opened_ts_millis AS since,
    last_ts_millis AS last, alarms AS times, cause, failure_class, severity, incident_key, event_id,
    CAST(NULL AS BIGINT) AS usual, environment
  FROM spark_events_incidents WHERE is_open
  UNION ALL
  SELECT 'ended', 2, entity, subject, name, app_name, app_id, query_run_id, ended, ended, 1, status, NULL, 'ERROR',
    NULL, NULL, NULL, environment
  FROM latest WHERE status IN {_BAD}
  UNION ALL
  SELECT 'silent', 3, entity, subject, name, app_name, app_id, query_run_id, since, since, 1, NULL, NULL, 'ERROR',
    NULL, NULL, usual_ms, environment
  FROM silent
  UNION ALL
  SELECT 'crash-loop', 4, entity, subject, name, app_name, app_id, NULL, coalesce(since, last), last,
    failed, NULL, NULL, 'ERROR', NULL, NULL, NULL, environment
  FROM looping
), ranked AS (
  SELECT problem.*,
    min(CASE WHEN entity = 'query' AND kind = 'failure' THEN 1 END)
      OVER (PARTITION BY app_name, environment) AS query_failed,
    min(CASE WHEN entity = 'application' AND kind IN ('failure', 'ended', 'crash-loop') THEN 1 END)
      OVER (PARTITION BY app_name, environment) AS application_failed
  FROM problem
), kept AS (
  SELECT ranked.*, min(rank) OVER (PARTITION BY entity, subject, environment) AS first
  FROM ranked
  WHERE rank IN (1, 3, 5) OR (entity = 'query' AND application_failed IS NULL)
    OR (entity = 'application' AND query_failed IS NULL)
)
SELECT kind, kept.entity, kept.subject, kept.name, kept.app_name, kept.app_id, kept.query_run_id,
  kept.since AS since_ts_millis, kept.last AS last_ts_millis, times,
  coalesce(cause, failed.root_cause, failed.error_type) AS cause,
  coalesce(kept.failure_class, failed.failure_class) AS failure_class, severity, incident_key,
  coalesce(kept.event_id, failed.event_id) AS event_id, usual AS usual_ms, kept.environment,
  CAST(looping.failed AS BIGINT) AS failed_runs, CAST(looping.down AS BIGINT) AS down_ms,
  silent.since AS silent_since_ts_millis, running.started AS running_since_ts_millis
FROM kept
LEFT JOIN looping ON looping.entity = kept.entity AND looping.subject = kept.subject
  AND looping.environment = kept.environment
LEFT JOIN silent ON silent.entity = kept.entity AND silent.subject = kept.subject
  AND silent.environment = kept.environment
LEFT JOIN latest AS running ON running.entity = kept.entity AND running.subject = kept.subject
  AND running.environment = kept.environment AND running.ended IS NULL
LEFT JOIN failed ON failed.entity = kept.entity AND failed.subject = kept.subject
  AND failed.environment = kept.environment AND failed.position = 1 AND kept.kind IN ('ended', 'silent', 'crash-loop')
  AND failed.app_id = coalesce(looping.app_id, CASE kept.kind WHEN 'ended' THEN kept.app_id END)
WHERE rank = first
"""
