package io.sparkevents.listener;

import com.fasterxml.jackson.databind.util.RawValue;
import io.sparkevents.queue.BoundedMap;
import io.sparkevents.queue.Record;
import io.sparkevents.queue.Subject;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.Map;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.streaming.SourceProgress;
import org.apache.spark.sql.streaming.StreamingQueryListener.QueryIdleEvent;
import org.apache.spark.sql.streaming.StreamingQueryListener.QueryProgressEvent;
import org.apache.spark.sql.streaming.StreamingQueryListener.QueryStartedEvent;
import org.apache.spark.sql.streaming.StreamingQueryListener.QueryTerminatedEvent;
import org.apache.spark.sql.streaming.StreamingQueryProgress;

/**
 * Creates the records of streaming queries.
 *
 * <p>This is a separate class, because a driver with only Spark core lacks the classes of Spark SQL. Used by the
 * listener thread only, after the queries that are already running are known.
 */
public final class StreamingRecords {
  /** Maximum number of running queries, exceeded only if Spark dropped many end events. */
  private static final int MOST_RUNS = 2_000;

  private final Map<String, Subject> runs = new BoundedMap<>(MOST_RUNS);
  private final ProgressTracking tracking = new ProgressTracking(MOST_RUNS);

  public Record of(SparkListenerEvent event) {
    if (event instanceof QueryProgressEvent) {
      return progress(((QueryProgressEvent) event).progress());
    }
    if (event instanceof QueryStartedEvent) {
      QueryStartedEvent started = (QueryStartedEvent) event;
      String tags = tags(started);
      return started(started.id().toString(), started.runId().toString(), started.name(), started.timestamp(), tags);
    }
    if (event instanceof QueryTerminatedEvent) {
      return terminated((QueryTerminatedEvent) event);
    }
    return event instanceof QueryIdleEvent ? idle((QueryIdleEvent) event) : null;
  }

  /**
   * Returns the start record of a query that was already running. Its start time is unknown, so the record contains the
   * current time.
   */
  public Record running(String id, String runId, String name) {
    return started(id, runId, name, Instant.now().truncatedTo(ChronoUnit.MILLIS).toString(), "");
  }

  /** Returns the tags of the query's jobs, separated by commas; empty if the Spark version does not report them. */
  private static String tags(QueryStartedEvent event) {
    try {
      return Text.beginning(event.jobTags().mkString(","));
    } catch (LinkageError older) {
      return "";
    }
  }

  private Record started(String id, String runId, String name, String timestamp, String tags) {
    return new Record(
        "query_started",
        Record.Priority.LIFECYCLE,
        Record.Change.keep(subject(runId), Record.Rank.RUN),
        json -> Record.write(json, "id", id, "run_id", runId, "name", name, "timestamp", timestamp, "tags", tags),
        Text.length(id, runId, name, timestamp, tags));
  }

  private Record progress(StreamingQueryProgress progress) {
    String runId = progress.runId().toString();
    Boolean asynchronous = tracking.isAsynchronous(progress.id(), progress.runId());
    Long through = tracking.committedThrough(runId);
    return new Record(
        "query_progress",
        Record.Priority.ROUTINE,
        Record.Change.keep(subject(runId), Record.Rank.RUN),
        json -> {
          Record.write(json, "progress", new RawValue(progress.json()));
          Record.write(json, "asynchronous", asynchronous, "committed_through", through);
        },
        sizeOf(progress));
  }

  private Subject subject(String runId) {
    return runs.computeIfAbsent(runId, first -> new Subject());
  }

  /**
   * Estimates the size of a progress report in bytes. The estimate contains the texts that may be large: an offset of a
   * source with thousands of partitions can have 100 KB, and a metric that the program observes has any size.
   */
  private static int sizeOf(StreamingQueryProgress progress) {
    int size = Text.length(progress.name(), progress.sink().description());
    for (SourceProgress source : progress.sources()) {
      size += Text.length(source.description(), source.startOffset(), source.endOffset(), source.latestOffset());
      for (Map.Entry<String, String> metric : source.metrics().entrySet()) {
        size += Text.length(metric.getKey(), metric.getValue());
      }
    }
    for (Map.Entry<String, Row> observed : progress.observedMetrics().entrySet()) {
      size += observed.getKey().length();
      Row row = observed.getValue();
      for (int i = 0; i < row.length(); i++) {
        size += row.get(i) instanceof String ? row.getString(i).length() : 0;
      }
    }
    return size;
  }

  private Record idle(QueryIdleEvent event) {
    Long through = tracking.committedThrough(event.runId().toString());
    return new Record(
        "query_idle",
        Record.Priority.ROUTINE,
        json -> {
          Record.write(json, "id", event.id(), "run_id", event.runId(), "timestamp", event.timestamp());
          Record.write(json, "committed_through", through);
        });
  }

  private Record terminated(QueryTerminatedEvent event) {
    Subject run = subject(event.runId().toString());
    runs.remove(event.runId().toString());
    Long through = tracking.committedThrough(event.runId().toString());
    tracking.forget(event.runId().toString());
    String exception = Text.cut(ApplicationRecords.orNull(event.exception()));
    String errorClass = ApplicationRecords.orNull(event.errorClassOnException());
    return new Record(
        "query_terminated",
        Record.Priority.LIFECYCLE,
        Record.Change.keep(run, Record.Rank.OVER),
        json -> {
          Record.write(json, "id", event.id(), "run_id", event.runId());
          Record.write(json, "exception", exception, "error_class", errorClass, "committed_through", through);
          if (event.exception().isDefined()) {
            Links.writeUi(json);
          }
        },
        Text.length(exception, errorClass));
  }
}
