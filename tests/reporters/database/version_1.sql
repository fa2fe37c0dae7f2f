-- Tables of version 1 with events that a spark-events of that version has written.
CREATE TABLE spark_events (
	event_id TEXT NOT NULL,
	sequence BIGINT NOT NULL,
	observed_ts_millis BIGINT NOT NULL,
	observed_at DATETIME,
	name TEXT NOT NULL,
	class_scope TEXT NOT NULL,
	severity TEXT NOT NULL,
	severity_number SMALLINT NOT NULL,
	body TEXT NOT NULL,
	app_id TEXT,
	app_attempt_id TEXT,
	app_name TEXT,
	query_id TEXT,
	query_run_id TEXT,
	query_name TEXT,
	entity TEXT,
	status TEXT,
	error_type TEXT,
	batch_id BIGINT,
	batches BIGINT,
	input_rows BIGINT,
	duration_ms BIGINT,
	attributes JSON NOT NULL,
	PRIMARY KEY (event_id)
);
CREATE TABLE spark_events_schema (
	version BIGINT NOT NULL
);
CREATE TABLE spark_events_thresholds (
	query_name TEXT NOT NULL,
	slow_commit_ms BIGINT NOT NULL,
	PRIMARY KEY (query_name)
);
CREATE INDEX spark_events_by_application ON spark_events (app_id, observed_ts_millis);
CREATE INDEX spark_events_by_name ON spark_events (name, observed_ts_millis);
CREATE INDEX spark_events_by_time ON spark_events (observed_ts_millis);
INSERT INTO spark_events VALUES ('00fc6dc683783a8026078e1a1e7d1feb', 1, 1795263269000, '2026-11-21 12:14:29.000000', 'JobStatusChangeEvent', 'spark.application', 'INFO', 9, 'Application ''shop'' started', 'local-1', '1', 'shop', NULL, NULL, NULL, 'application', 'RUNNING', NULL, NULL, NULL, NULL, NULL, '{"spark.app.id":"local-1","spark.app.name":"shop","spark.app.attempt_id":"1","spark.user":"ada","spark.version":"4.3.0","host.name":"h1","spark.entity":"application","status.new":"RUNNING"}');
INSERT INTO spark_events VALUES ('890b4786467fc6015f28f97562691503', 319, 1795263269000, '2026-11-21 12:14:29.000000', 'EventsDroppedEvent', 'spark_events.dispatch', 'WARN', 13, '1 record was dropped before reaching the dispatcher: the handoff queue was full (1 job_start)', 'local-1', '1', 'shop', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{"spark.app.id":"local-1","spark.app.name":"shop","spark.app.attempt_id":"1","spark.user":"ada","spark.version":"4.3.0","host.name":"h1","dropped.where":"handoff","dropped.reason":"queue-full","dropped.count":1}');
INSERT INTO spark_events VALUES ('f91f7cbf303c1872987b50bc535f4ee4', 320, 1795263269000, '2026-11-21 12:14:29.000000', 'JobFailureEvent', 'spark.sql.execution', 'WARN', 13, 'SQL execution 8 (d) failed in the driver: [A_B] x', 'local-1', '1', 'shop', NULL, NULL, NULL, 'sql', NULL, 'A_B', NULL, NULL, NULL, NULL, '{"spark.app.id":"local-1","spark.app.name":"shop","spark.app.attempt_id":"1","spark.user":"ada","spark.version":"4.3.0","host.name":"h1","spark.entity":"sql","spark.sql.execution.id":"8","spark.job.description":"d","failure.will_retry":false,"error.type":"A_B","exception.type":"_OTHER","exception.message":"[A_B] x","exception.stacktrace":"[A_B] x","failure.root_cause":"[A_B] x","failure.label.type":"USER","failure.label.owner":"payments"}');
INSERT INTO spark_events VALUES ('b7a00a5560bf744eb3ff74bdccb41e92', 325, 1795263269000, '2026-11-21 12:14:29.000000', 'ReporterStatusChangeEvent', 'spark_events.dispatch', 'WARN', 13, 'The circuit breaker of reporter ''audit'' went from closed to open: its events are held for 30 s: OSError: no', 'local-1', '1', 'shop', NULL, NULL, NULL, NULL, 'open', NULL, NULL, NULL, NULL, NULL, '{"spark.app.id":"local-1","spark.app.name":"shop","spark.app.attempt_id":"1","spark.user":"ada","spark.version":"4.3.0","host.name":"h1","reporter.name":"audit","status.old":"closed","status.new":"open","status.reason":"its events are held for 30 s: OSError: no"}');
INSERT INTO spark_events VALUES ('edb5d5198863c4e6a593cbcf11984191', 326, 1795263269000, '2026-11-21 12:14:29.000000', 'DispatcherReportEvent', 'spark_events.dispatch', 'WARN', 13, 'Events by reporter: audit 1 of 4 delivered, 1 lost, 1 on disk, not delivered yet, 1 not delivered yet', 'local-1', '1', 'shop', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{"spark.app.id":"local-1","spark.app.name":"shop","spark.app.attempt_id":"1","spark.user":"ada","spark.version":"4.3.0","host.name":"h1","reporter.audit.accepted":4,"reporter.audit.delivered":1,"reporter.audit.held":1,"reporter.audit.spooled":1,"reporter.audit.failures":0,"reporter.audit.timeouts":0,"reporter.audit.dropped.mailbox-full":1,"lost":1,"undelivered":1,"records.illegal":0,"records.without_start":0,"records.defective":0,"records.unknown":0,"records.dropped":0}');
INSERT INTO spark_events VALUES ('3a4ea653a05d8c4f8c200875856df134', 318, 1795263269008, '2026-11-21 12:14:29.008000', 'JobFailureEvent', 'spark.streaming.query', 'ERROR', 17, 'Query ''clicks'' failed at batch 1: a.B: [SOME_CLASS] x. SQLSTATE: 22012 (D.java:1 in a.B.c)', 'local-1', '1', 'shop', 'q9', 'r9', 'clicks', 'query', NULL, 'SOME_CLASS', 1, NULL, NULL, NULL, '{"spark.app.id":"local-1","spark.app.name":"shop","spark.app.attempt_id":"1","spark.user":"ada","spark.version":"4.3.0","host.name":"h1","spark.entity":"query","failure.will_retry":false,"spark.streaming.query.id":"q9","spark.streaming.query.run_id":"r9","spark.streaming.query.name":"clicks","error.type":"SOME_CLASS","exception.type":"a.B","exception.message":"[SOME_CLASS] x. SQLSTATE: 22012","exception.stacktrace":"a.B: [SOME_CLASS] x. SQLSTATE: 22012\n\tat a.B.c(D.java:1)\n\tat a.B.c(D.jav\n... [781 characters cut] ...\n:1)\n\tat a.B.c(D.java:1)\n","failure.root_cause":"a.B: [SOME_CLASS] x. SQLSTATE: 22012","exception.stacktrace.cut":true,"failure.location":"D.java:1 in a.B.c","error.sql_state":"22012","failure.label.type":"USER","failure.label.owner":"payments","spark.streaming.batch.id":1,"source.0.offset.committed":"{\"t\":{\"0\":1}}"}');
INSERT INTO spark_events VALUES ('51079c597a1c64da92c135e040d819fd', 5, 1795263269009, '2026-11-21 12:14:29.009000', 'JobStatusChangeEvent', 'spark.application', 'ERROR', 17, 'Application ''shop'' failed with exit code 3 (job 900 failed)', 'local-1', NULL, 'shop', NULL, NULL, NULL, 'application', 'FAILED', NULL, NULL, NULL, NULL, NULL, '{"spark.app.id":"local-1","spark.app.name":"shop","spark.user":"ada","spark.version":"4.3.0","host.name":"h1","spark.entity":"application","status.old":"RUNNING","status.new":"FAILED","end.reason":"STOPPED","exit.code":3,"outcome.hint":"job 900 failed"}');
INSERT INTO spark_events VALUES ('88d4efbb35ee1f37657c1ac2f1f09dbb', 6, 1795263269009, '2026-11-21 12:14:29.009000', 'JobFailureEvent', 'spark.application', 'ERROR', 17, 'Application ''shop'' failed with exit code 3 (job 900 failed): java.io.IOException: disk', 'local-1', NULL, 'shop', NULL, NULL, NULL, 'application', NULL, 'java.io.IOException', NULL, NULL, NULL, NULL, '{"spark.app.id":"local-1","spark.app.name":"shop","spark.user":"ada","spark.version":"4.3.0","host.name":"h1","spark.entity":"application","error.type":"java.io.IOException","end.reason":"STOPPED","exit.code":3,"outcome.hint":"job 900 failed","exception.type":"java.io.IOException","exception.message":"disk","exception.stacktrace":"java.io.IOException: disk","failure.root_cause":"java.io.IOException: disk","failure.label.type":"SYSTEM","failure.label.owner":"payments"}');
INSERT INTO spark_events VALUES ('d695831efeb82cc0e875298bf1cca432', 324, 1795263269009, '2026-11-21 12:14:29.009000', 'JobStatusChangeEvent', 'spark.application', 'INFO', 9, 'Application ''shop'' ended; its outcome is unknown (query ''clicks'' failed, job 900 failed)', 'local-1', '1', 'shop', NULL, NULL, NULL, 'application', 'ENDED', NULL, NULL, NULL, NULL, NULL, '{"spark.app.id":"local-1","spark.app.name":"shop","spark.app.attempt_id":"1","spark.user":"ada","spark.version":"4.3.0","host.name":"h1","spark.entity":"application","status.old":"RUNNING","status.new":"ENDED","end.reason":"SUBMIT_STOPPED","outcome.hint":"query ''clicks'' failed; job 900 failed"}');
INSERT INTO spark_events VALUES ('8f1a2885abcd8fc040e1973a6c496251', 77, 1795263324132, '2026-11-21 12:15:24.132000', 'AllSubtasksStatusChangeEvent', 'spark.stage', 'INFO', 9, 'All 2 tasks of stage 11 [s] have finished (query ''q0'', batch 10)', 'local-1', '1', 'shop', 'q0', 'q0-r1', 'q0', NULL, 'ALL_FINISHED', NULL, 10, NULL, NULL, NULL, '{"spark.app.id":"local-1","spark.app.name":"shop","spark.app.attempt_id":"1","spark.user":"ada","spark.version":"4.3.0","host.name":"h1","spark.stage.id":11,"spark.stage.attempt":0,"spark.stage.name":"s","status.old":"ALL_RUNNING_OR_FINISHED","status.new":"ALL_FINISHED","tasks.total":2,"tasks.running":0,"tasks.finished":2,"tasks.failed_attempts":1,"spark.streaming.query.id":"q0","spark.streaming.query.run_id":"q0-r1","spark.streaming.query.name":"q0","spark.streaming.batch.id":10}');
INSERT INTO spark_events VALUES ('2ae525c71a4b8a76ce4417fa4edf44cb', 4, 1795263329000, '2026-11-21 12:15:29.000000', 'HeartbeatEvent', 'spark.application', 'DEBUG', 5, 'Application ''shop'' is alive: 1 query and 0 jobs running, 1 batch committed since the last heartbeat, 4 rows behind', 'local-1', NULL, 'shop', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{"spark.app.id":"local-1","spark.app.name":"shop","spark.user":"ada","spark.version":"4.3.0","host.name":"h1","spark.heartbeat.interval_ms":60000,"spark.heartbeat.queries":1,"spark.heartbeat.jobs":0,"spark.heartbeat.batches":1,"spark.heartbeat.lag":4,"spark.heartbeat.executors_removed":0}');
INSERT INTO spark_events VALUES ('44b5c734afc8adb40788c8ba195d7210', 124, 1795263354060, '2026-11-21 12:15:54.060000', 'WatermarkStatusChangeEvent', 'spark.streaming.watermark', 'WARN', 13, 'Source 1 (KafkaV2[1]) of query ''q0'' has had no new data for 60 s and holds back the watermark at 2026-11-21T12:14:44.048Z, 70 s behind the newest event', 'local-1', '1', 'shop', 'q0', 'q0-r1', 'q0', NULL, 'IDLE', NULL, NULL, NULL, NULL, NULL, '{"spark.app.id":"local-1","spark.app.name":"shop","spark.app.attempt_id":"1","spark.user":"ada","spark.version":"4.3.0","host.name":"h1","spark.streaming.query.id":"q0","spark.streaming.query.run_id":"q0-r1","spark.streaming.query.name":"q0","watermark.subject":"source","status.old":"ACTIVE","status.new":"IDLE","source.index":1,"source.description":"KafkaV2[1]","watermark":"2026-11-21T12:14:44.048Z","watermark.policy":"min","watermark.lag_ms":70144,"idle.since_millis":1795263294060,"idle.rows_read":48,"watermark.held_back_by":"source 1 (KafkaV2[1])"}');
INSERT INTO spark_events VALUES ('5190be9b25c395207acc039286d6d8fe', 189, 1795263399312, '2026-11-21 12:16:39.312000', 'BatchCommitEvent', 'spark.streaming.query', 'INFO', 9, 'Query ''q0'' committed batch 25 in 12 ms: 4 rows, watermark 2026-11-21T12:14:44.048Z', 'local-1', '1', 'shop', 'q0', 'q0-r1', 'q0', NULL, NULL, NULL, 25, 1, 4, 12, '{"spark.app.id":"local-1","spark.app.name":"shop","spark.app.attempt_id":"1","spark.user":"ada","spark.version":"4.3.0","host.name":"h1","spark.streaming.query.id":"q0","spark.streaming.query.run_id":"q0-r1","spark.streaming.query.name":"q0","spark.streaming.batch.id":25,"batches":1,"rows.input":4,"batch.no_data":false,"watermark":"2026-11-21T12:14:44.048Z","event_time.max":"2026-11-21T12:16:39.300Z","sink.description":"noop","duration.addBatch_ms":1,"duration.triggerExecution_ms":12,"source.0.description":"KafkaV2[0]","source.0.rows":4,"source.0.offset.from":"{\"t\":{\"0\":100,\"1\":7}}","source.0.offset.to":"{\"t\":{\"0\":104,\"1\":7}}","source.1.description":"KafkaV2[1]","source.1.rows":0,"source.1.offset.from":"{\"t\":{\"0\":20,\"1\":7}}","source.1.offset.to":"{\"t\":{\"0\":20,\"1\":7}}","state.operators":1,"state.rows":1,"state.rows.updated":0,"state.rows.removed":0,"state.rows.dropped_by_watermark":0,"state.memory_bytes":0}');
INSERT INTO spark_events VALUES ('dd7d5cf560c828d27084237294e4b701', 290, 1795263469480, '2026-11-21 12:17:49.480000', 'WatermarkStatusChangeEvent', 'spark.streaming.watermark', 'WARN', 13, 'Partition t-0 of source 1 (KafkaV2[1]) of query ''q0'' is active again after 2 min; 1 row was dropped as late', 'local-1', '1', 'shop', 'q0', 'q0-r1', 'q0', NULL, 'ACTIVE', NULL, NULL, NULL, NULL, NULL, '{"spark.app.id":"local-1","spark.app.name":"shop","spark.app.attempt_id":"1","spark.user":"ada","spark.version":"4.3.0","host.name":"h1","spark.streaming.query.id":"q0","spark.streaming.query.run_id":"q0-r1","spark.streaming.query.name":"q0","watermark.subject":"partition","status.old":"IDLE","status.new":"ACTIVE","source.index":1,"source.description":"KafkaV2[1]","source.partition":"t-0","watermark":"2026-11-21T12:14:44.048Z","watermark.policy":"min","watermark.lag_ms":185432,"idle.since_millis":1795263294060,"idle.duration_ms":175420,"rows.dropped_late":1}');
INSERT INTO spark_events VALUES ('8b5e0c607a4e4ab99af1069ad2372245', 294, 1795263469483, '2026-11-21 12:17:49.483000', 'JobFailureEvent', 'spark.stage', 'ERROR', 17, 'Stage 41 [s] failed (query ''q0'', batch 41): org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 41.0 failed 1 times, most recent failure: Lost task', 'local-1', '1', 'shop', 'q0', 'q0-r1', 'q0', 'stage', NULL, 'org.apache.spark.SparkException', 41, NULL, NULL, NULL, '{"spark.app.id":"local-1","spark.app.name":"shop","spark.app.attempt_id":"1","spark.user":"ada","spark.version":"4.3.0","host.name":"h1","spark.entity":"stage","spark.stage.id":41,"spark.stage.attempt":0,"spark.stage.name":"s","failure.will_retry":false,"tasks.total":2,"tasks.failed_attempts":1,"spark.streaming.query.id":"q0","spark.streaming.query.run_id":"q0-r1","spark.streaming.query.name":"q0","spark.streaming.batch.id":41,"error.type":"org.apache.spark.SparkException","exception.type":"org.apache.spark.SparkException","exception.message":"Job aborted due to stage failure: Task 0 in stage 41.0 failed 1 times, most recent failure: Lost task","exception.stacktrace":"Job aborted due to stage failure: Task 0 in stage 41.0 failed 1 times, most recent failure: Lost task","failure.root_cause":"org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 41.0 failed 1 times, most recent failure: Lost task","failure.label.type":"SYSTEM","failure.label.owner":"payments"}');
INSERT INTO spark_events VALUES ('88a0679e9069d35fe9a27ef8cc9f68cc', 296, 1795263469483, '2026-11-21 12:17:49.483000', 'JobFailureEvent', 'spark.job', 'ERROR', 17, 'Job 41 (query ''q0'', batch 41) failed: java.io.IOException: disk', 'local-1', '1', 'shop', 'q0', 'q0-r1', 'q0', 'job', NULL, 'java.io.IOException', 41, NULL, NULL, NULL, '{"spark.app.id":"local-1","spark.app.name":"shop","spark.app.attempt_id":"1","spark.user":"ada","spark.version":"4.3.0","host.name":"h1","spark.entity":"job","spark.job.id":41,"failure.will_retry":false,"spark.streaming.query.id":"q0","spark.streaming.query.run_id":"q0-r1","spark.streaming.query.name":"q0","spark.streaming.batch.id":41,"error.type":"java.io.IOException","exception.type":"java.io.IOException","exception.message":"disk","exception.stacktrace":"java.io.IOException: disk\n","failure.root_cause":"java.io.IOException: disk","failure.label.type":"SYSTEM","failure.label.owner":"payments"}');
INSERT INTO spark_events VALUES ('73541c3b31ee7beac28f8d2a78b22e47', 297, 1795263469483, '2026-11-21 12:17:49.483000', 'JobStatusChangeEvent', 'spark.streaming.query', 'ERROR', 17, 'Query ''q0'' went from RUNNING to FAILED: java.io.IOException: disk', 'local-1', '1', 'shop', 'q0', 'q0-r1', 'q0', 'query', 'FAILED', 'java.io.IOException', NULL, NULL, NULL, NULL, '{"spark.app.id":"local-1","spark.app.name":"shop","spark.app.attempt_id":"1","spark.user":"ada","spark.version":"4.3.0","host.name":"h1","spark.entity":"query","status.old":"RUNNING","status.new":"FAILED","spark.streaming.query.id":"q0","spark.streaming.query.run_id":"q0-r1","spark.streaming.query.name":"q0","error.type":"java.io.IOException"}');
INSERT INTO spark_events VALUES ('3bf28cc3504878227051c91bd0ccfc41', 299, 1795263469483, '2026-11-21 12:17:49.483000', 'JobStatusChangeEvent', 'spark.streaming.query', 'INFO', 9, 'Query ''q0'' restarted', 'local-1', '1', 'shop', 'q0', 'q0-r2', 'q0', 'query', 'RUNNING', NULL, NULL, NULL, NULL, NULL, '{"spark.app.id":"local-1","spark.app.name":"shop","spark.app.attempt_id":"1","spark.user":"ada","spark.version":"4.3.0","host.name":"h1","spark.entity":"query","status.old":"FAILED","status.new":"RUNNING","spark.streaming.query.id":"q0","spark.streaming.query.run_id":"q0-r2","spark.streaming.query.name":"q0","query.restart":true,"query.run":2}');
INSERT INTO spark_events VALUES ('45c211d9924dc8d220e48b64bc5915fb', 301, 1795263469483, '2026-11-21 12:17:49.483000', 'JobStatusChangeEvent', 'spark.streaming.query', 'INFO', 9, 'Query ''q0'' finished', 'local-1', '1', 'shop', 'q0', 'q0-r2', 'q0', 'query', 'FINISHED', NULL, NULL, NULL, NULL, NULL, '{"spark.app.id":"local-1","spark.app.name":"shop","spark.app.attempt_id":"1","spark.user":"ada","spark.version":"4.3.0","host.name":"h1","spark.entity":"query","status.old":"RUNNING","status.new":"FINISHED","spark.streaming.query.id":"q0","spark.streaming.query.run_id":"q0-r2","spark.streaming.query.name":"q0"}');
INSERT INTO spark_events VALUES ('fbbddfb19d2d557bb67fdcb9e4b7cd2a', 0, 1795620118529, '2026-11-25 15:21:58.529000', 'TestEvent', 'spark_events.cli', 'INFO', 9, 'Test of reporter ''page''; no action needed', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{"test":true,"reporter.name":"page","host.name":"vm"}');
INSERT INTO spark_events VALUES ('d5ad84da99376c40a19ec900e81b0ba1', 3, 1795620118529, '2026-11-25 15:21:58.529000', 'EnrichmentEvent', 'spark_events.enrich', 'INFO', 9, 'Enriched with lookup on batch 4 of query q1: 3 rows, 0 calls, 1 failed', 'local-1', NULL, 'shop', 'q1', 'r1', 'clicks', NULL, NULL, NULL, 4, NULL, NULL, NULL, '{"spark.app.id":"local-1","spark.app.name":"shop","spark.user":"ada","spark.version":"4.3.0","host.name":"h1","spark.streaming.query.id":"q1","spark.streaming.query.run_id":"r1","spark.streaming.query.name":"clicks","enrich.rows":3,"enrich.calls":0,"enrich.attempts":0,"enrich.retries":0,"enrich.timeouts":0,"enrich.throttled":0,"enrich.gate_closed":0,"enrich.coalesced":0,"enrich.cached":0,"enrich.known":0,"enrich.swallowed":0,"enrich.abandoned":0,"enrich.failures":1,"enrich.peak_in_flight":0,"enrich.latency.p50_ms":10.009765625,"enrich.latency.p99_ms":10.009765625,"enrich.slot_wait.mean_ms":0.0,"enrich.function":"lookup","enrich.partitions":1,"enrich.duration_ms":100,"enrich.outcome":"settled","enrich.failures.ConnectionError":1,"spark.streaming.batch.id":4}');
INSERT INTO spark_events_thresholds VALUES ('*', 60000);
INSERT INTO spark_events_schema VALUES (1);
CREATE VIEW spark_events_failures AS
SELECT observed_at, observed_ts_millis, severity, entity, app_id, app_name, query_id, query_name, batch_id, error_type,
  json_extract(attributes, '$."failure.label.type"') AS failure_type,
  json_extract(attributes, '$."failure.root_cause"') AS root_cause,
  json_extract(attributes, '$."failure.location"') AS location,
  CAST(json_extract(attributes, '$."failure.will_retry"') AS TEXT) IN ('true', '1') AS will_retry,
  body, event_id
FROM spark_events
WHERE name = 'JobFailureEvent';
CREATE VIEW spark_events_runs AS
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
  CASE WHEN coalesce(ended, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) > started THEN coalesce(ended, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) - started ELSE 0 END AS uptime_ms,
  CASE WHEN status IN ('FAILED', 'LOST', 'UNKNOWN') AND coalesce(next, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) > ended
    THEN coalesce(next, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) - ended ELSE 0 END AS downtime_ms,
  next IS NULL AS is_latest
FROM known;
CREATE VIEW spark_events_slow_commits AS
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
WHERE severity_number >= 13 OR duration_ms / coalesce(nullif(batches, 0), 1) > threshold_ms;
CREATE VIEW spark_events_uptime AS
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
GROUP BY entity, subject;
