"""What is wrong now; :mod:`spark_events.sql.dialects` explains the placeholders.

One row per problem. An application or query of an environment has one problem at a time, the first of these that holds;
the row also has the crash loop and the silence that it hides, and since when its latest run is active:

- ``failure``: its open incidents;
- ``ended``: its last run is FAILED, LOST or UNKNOWN, and no event names the failure;
- ``silent``: it is silent itself, as ``spark_events_silent`` defines it; or an older run that has not ended is silent,
  although the latest run of the same name is active;
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
FROM spark_events WHERE {{not_ahead}} {{by_source}}
"""

_BAD = "('FAILED', 'LOST', 'UNKNOWN')"
_MINUTE, _HOUR, _DAY = 60_000, 3_600_000, 86_400_000
#: Number of intervals from which the usual interval is computed.
_RECENT = 20
#: Number of a run's own intervals from which those of earlier runs do not count, and number of runs that are compared.
_OWN, _RUNS = 2, 5

# One row per run that has not ended and is silent: it reported nothing for ten times its usual interval.
# - A sign of a query is a commit, and of an application any event. Signs that are dated in the future are none.
# - The usual interval is the median of the run's last intervals: one event with a wrong time hides no silence. With
#   fewer than two intervals, those of the runs before count too, because a restart does not change the work.
# - A query that has not committed since its start is silent from its start on, if its earlier runs have an interval.
# - ``oldest`` limits the signs that are read of each run, so that no database reads all commits.
SILENT_RUNS = f"""
WITH run AS (
  SELECT entity, subject, environment, app_id, coalesce(query_run_id, '') AS run_id, max(query_run_id) AS query_run_id,
    max(name) AS name, max(app_name) AS app_name, max(started_ts_millis) AS started,
    max(CASE WHEN is_latest THEN 1 ELSE 0 END) AS is_latest,
    max(CASE WHEN is_long_running THEN 1 ELSE 0 END) AS is_long_running,
    max(CASE WHEN ended_ts_millis IS NULL THEN 1 ELSE 0 END) AS is_open
  FROM spark_events_runs GROUP BY entity, subject, environment, app_id, coalesce(query_run_id, '')
), placed AS (
  SELECT run.*, max(is_open) OVER (PARTITION BY entity, subject, environment) AS is_active,
    row_number() OVER (PARTITION BY entity, subject, environment ORDER BY started DESC, app_id, run_id) AS age
  FROM run
), known AS (
  SELECT placed.*,
    CASE WHEN entity = 'query' THEN (
      SELECT min(ts) FROM (
        SELECT observed_ts_millis AS ts FROM spark_events AS e
        WHERE e.query_run_id = placed.query_run_id AND coalesce(e.name, '') = 'BatchCommitEvent' AND {{not_ahead}}
        ORDER BY observed_ts_millis DESC LIMIT {_RECENT + 1}
      ) AS signs
    ) ELSE (
      SELECT min(ts) FROM (
        SELECT observed_ts_millis AS ts FROM spark_events AS e WHERE e.app_id = placed.app_id AND {{not_ahead}}
        ORDER BY observed_ts_millis DESC LIMIT {_RECENT + 1}
      ) AS signs
    ) END AS oldest
  FROM placed WHERE is_open = 1 OR (is_active = 1 AND age <= {_RUNS})
), sign AS (
  SELECT known.entity, known.subject, known.environment, known.app_id, run_id, observed_ts_millis AS ts
  FROM known JOIN spark_events AS e ON e.query_run_id = known.query_run_id AND e.observed_ts_millis >= oldest
  WHERE known.entity = 'query' AND coalesce(e.name, '') = 'BatchCommitEvent' AND {{not_ahead}}
  UNION ALL
  SELECT known.entity, known.subject, known.environment, known.app_id, run_id, observed_ts_millis
  FROM known JOIN spark_events AS e ON e.app_id = known.app_id AND e.observed_ts_millis >= oldest
  WHERE known.entity = 'application' AND {{not_ahead}}
), interval_of_run AS (
  SELECT sign.*, ts - lag(ts) OVER (PARTITION BY entity, subject, environment, app_id, run_id ORDER BY ts) AS gap
  FROM sign
), candidate AS (
  SELECT known.entity, known.subject, known.environment, known.app_id, known.run_id, gap, ts,
    CASE WHEN found.app_id = known.app_id AND found.run_id = known.run_id THEN 1 ELSE 0 END AS is_own,
    sum(CASE WHEN found.app_id = known.app_id AND found.run_id = known.run_id THEN 1 ELSE 0 END)
      OVER (PARTITION BY known.entity, known.subject, known.environment, known.app_id, known.run_id) AS own
  FROM known JOIN interval_of_run AS found ON found.entity = known.entity AND found.subject = known.subject
    AND found.environment = known.environment
  WHERE is_open = 1 AND gap IS NOT NULL
), recent AS (
  SELECT candidate.*, row_number() OVER (
    PARTITION BY entity, subject, environment, app_id, run_id ORDER BY ts DESC
  ) AS recency
  FROM candidate WHERE is_own = 1 OR own < {_OWN}
), ordered AS (
  SELECT recent.*, row_number() OVER (PARTITION BY entity, subject, environment, app_id, run_id ORDER BY gap) AS place,
    count(*) OVER (PARTITION BY entity, subject, environment, app_id, run_id) AS gaps
  FROM recent WHERE recency <= {_RECENT}
), median AS (
  SELECT entity, subject, environment, app_id, run_id, min(gap) AS usual, max(gaps) AS gaps
  FROM ordered WHERE 2 * place >= gaps GROUP BY entity, subject, environment, app_id, run_id
), newest AS (
  SELECT entity, subject, environment, app_id, run_id, max(ts) AS last FROM sign
  GROUP BY entity, subject, environment, app_id, run_id
), judged AS (
  SELECT known.*, usual,
    coalesce(last, CASE WHEN known.entity = 'query' AND usual IS NOT NULL THEN started END) AS since,
    CASE WHEN usual IS NULL THEN {_DAY} ELSE {{greatest}}(10 * usual, CASE
      WHEN known.entity = 'query' AND gaps >= {_OWN} THEN {5 * _MINUTE}
      WHEN known.entity = 'query' THEN {15 * _MINUTE}
      WHEN is_long_running = 1 OR EXISTS (
        SELECT 1 FROM spark_events AS e WHERE e.app_id = known.app_id AND e.name = 'HeartbeatEvent'
      ) THEN {5 * _MINUTE}
      ELSE {15 * _MINUTE} END) END AS limit_ms
  FROM known
  LEFT JOIN median ON median.entity = known.entity AND median.subject = known.subject
    AND median.environment = known.environment AND median.app_id = known.app_id AND median.run_id = known.run_id
  LEFT JOIN newest ON newest.entity = known.entity AND newest.subject = known.subject
    AND newest.environment = known.environment AND newest.app_id = known.app_id AND newest.run_id = known.run_id
  WHERE is_open = 1
)
SELECT entity, subject, name, app_name, app_id, query_run_id, is_latest = 1 AS is_latest, since AS since_ts_millis,
  CAST(usual AS BIGINT) AS usual_ms, environment, CAST(limit_ms AS BIGINT) AS limit_ms
FROM judged WHERE {{now}} - since > limit_ms
"""

# One row per application or query of an environment whose latest run has not ended, and about which nothing is known
# since a time: it is silent, its application is silent, or all its sources are stale. From then on, nothing is uptime.
SILENT = """
WITH running AS (
  SELECT entity, subject, app_name, environment, app_id
  FROM spark_events_runs WHERE is_latest AND ended_ts_millis IS NULL
), stale AS (
  SELECT app_name, environment, max(newest_ts_millis) AS since
  FROM (
    SELECT DISTINCT coalesce(app_name, app_id) AS app_name, coalesce(environment, '') AS environment,
      {source} AS source
    FROM {with_sources}
  ) AS placed
  JOIN spark_events_sources ON spark_events_sources.source = placed.source
  GROUP BY app_name, environment
  HAVING min(CASE WHEN is_stale THEN 1 ELSE 0 END) = 1 AND max(newest_ts_millis) <= {now}
), quiet AS (
  SELECT entity, subject, environment, entity AS whose, since_ts_millis AS since, usual_ms AS usual
  FROM spark_events_silent_runs WHERE is_latest
  UNION ALL
  SELECT running.entity, running.subject, running.environment, 'application', silent.since_ts_millis, NULL
  FROM running JOIN spark_events_silent_runs AS silent
    ON silent.app_id = running.app_id AND silent.entity = 'application'
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
), older AS (
  SELECT run.* FROM spark_events_silent_runs AS run
  LEFT JOIN spark_events_silent_runs AS of_application
    ON run.entity = 'query' AND of_application.entity = 'application' AND of_application.app_id = run.app_id
  WHERE NOT run.is_latest AND of_application.app_id IS NULL
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
  SELECT 'silent', 3, entity, subject, name, app_name, app_id, query_run_id, since_ts_millis, since_ts_millis, 1, NULL,
    NULL, 'ERROR', NULL, NULL, usual_ms, environment
  FROM older
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
