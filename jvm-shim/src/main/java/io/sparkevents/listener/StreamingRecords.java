package io.sparkevents.listener;

import io.sparkevents.queue.Priority;
import io.sparkevents.queue.Record;
import io.sparkevents.queue.RestoreState;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.UUID;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.sql.streaming.StreamingQueryListener.QueryIdleEvent;
import org.apache.spark.sql.streaming.StreamingQueryListener.QueryProgressEvent;
import org.apache.spark.sql.streaming.StreamingQueryListener.QueryStartedEvent;
import org.apache.spark.sql.streaming.StreamingQueryListener.QueryTerminatedEvent;
import org.apache.spark.sql.streaming.StreamingQueryProgress;
import scala.Option;

/**
 * Makes the records of streaming queries. A separate class, because a driver with only Spark core lacks the classes
 * that it refers to.
 */
public final class StreamingRecords {
  private StreamingRecords() {}

  public static Record of(SparkListenerEvent event) {
    if (event instanceof QueryProgressEvent) {
      return progress(((QueryProgressEvent) event).progress());
    }
    if (event instanceof QueryStartedEvent) {
      return started((QueryStartedEvent) event);
    }
    if (event instanceof QueryTerminatedEvent) {
      return terminated((QueryTerminatedEvent) event);
    }
    if (event instanceof QueryIdleEvent) {
      return idle((QueryIdleEvent) event);
    }
    return null;
  }

  private static Record started(QueryStartedEvent event) {
    return started(event.id().toString(), event.runId().toString(), event.name(), event.timestamp());
  }

  /**
   * Returns the start record of a query that is already running; its start time is unknown, so the record has the
   * current time.
   */
  public static Record running(String id, String runId, String name) {
    return started(id, runId, name, Instant.now().truncatedTo(ChronoUnit.MILLIS).toString());
  }

  private static Record started(String id, String runId, String name, String timestamp) {
    return new Record(
        "query_started",
        Priority.LIFECYCLE,
        RestoreState.Change.begin("run:" + runId, RestoreState.Rank.RUN),
        json -> {
          json.writeStringField("id", id);
          json.writeStringField("run_id", runId);
          json.writeStringField("name", name);
          json.writeStringField("timestamp", timestamp);
        });
  }

  private static Record progress(StreamingQueryProgress progress) {
    return new Record(
        "query_progress",
        Priority.ROUTINE,
        RestoreState.Change.add("run:" + progress.runId(), RestoreState.Rank.RUN),
        json -> {
          json.writeFieldName("progress");
          json.writeRawValue(progress.json());
        });
  }

  private static Record idle(QueryIdleEvent event) {
    UUID run = event.runId();
    return new Record(
        "query_idle",
        Priority.ROUTINE,
        null,
        json -> {
          json.writeStringField("id", event.id().toString());
          json.writeStringField("run_id", run.toString());
          json.writeStringField("timestamp", event.timestamp());
        });
  }

  private static Record terminated(QueryTerminatedEvent event) {
    return new Record(
        "query_terminated",
        Priority.LIFECYCLE,
        RestoreState.Change.add("run:" + event.runId(), RestoreState.Rank.OVER),
        json -> {
          json.writeStringField("id", event.id().toString());
          json.writeStringField("run_id", event.runId().toString());
          json.writeStringField("exception", Text.cut(orNull(event.exception())));
          json.writeStringField("error_class", orNull(event.errorClassOnException()));
        });
  }

  private static <T> T orNull(Option<T> option) {
    return option.isDefined() ? option.get() : null;
  }
}
