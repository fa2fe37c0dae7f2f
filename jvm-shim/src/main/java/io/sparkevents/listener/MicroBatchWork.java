package io.sparkevents.listener;

import io.sparkevents.queue.Priority;
import io.sparkevents.queue.Record;
import io.sparkevents.queue.RestoreState;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;

/**
 * Holds back the records of jobs and stages of micro-batches, which make events only if they fail.
 *
 * <p>Otherwise a stream with short triggers would fill the queue with them. One record per batch reports the current
 * batch of a query instead. For a job or stage that fails, its start record is sent just before its end record. Used by
 * the listener thread only.
 */
public final class MicroBatchWork {
  private static final String QUERY = "sql.streaming.queryId";
  private static final String BATCH = "streaming.sql.batchId";
  private static final String[] CARRIED = {QUERY, BATCH, "spark.sql.streaming.multipleWatermarkPolicy"};
  /**
   * Maximum number of jobs, stages and queries; beyond it the oldest is removed, because Spark may have dropped its
   * end.
   */
  private static final int LIMIT = 2_000;

  private static final class Bounded<V> extends LinkedHashMap<String, V> {
    private static final long serialVersionUID = 1;

    @Override
    protected boolean removeEldestEntry(Map.Entry<String, V> eldest) {
      return size() > LIMIT;
    }
  }

  private final RecordSink destination;
  private final boolean holdsBack;
  /** Start records of running jobs and stages, by subject. */
  private final Map<String, Record> held = new Bounded<>();
  /** Last recorded batch of each query. */
  private final Map<String, String> batches = new Bounded<>();
  private boolean lastJobFailed;

  public MicroBatchWork(RecordSink destination, boolean holdsBack) {
    this.destination = destination;
    this.holdsBack = holdsBack;
  }

  /** Whether a job or stage with these local properties is held back. */
  public boolean holdsBack(Properties local) {
    return holdsBack && local != null && local.getProperty(QUERY) != null;
  }

  /** Handles the start of a job or of a stage attempt. */
  public void began(Record record, Properties local) {
    if (!holdsBack(local)) {
      destination.hand(record);
      return;
    }
    String query = local.getProperty(QUERY);
    held.put(record.change.subject, record);
    String batch = local.getProperty(BATCH);
    if (batch != null && !batch.equals(batches.put(query, batch))) {
      destination.hand(batchStarted(query, local));
    }
  }

  /**
   * Handles the end of a stage attempt.
   *
   * @param records status changes of its tasks, if recorded, and then its end
   */
  public void stageEnded(List<Record> records) {
    Record end = records.get(records.size() - 1);
    records.subList(0, records.size() - 1).forEach(destination::hand);
    Record beginning = held.isEmpty() ? null : held.remove(end.change.subject);
    if (beginning == null || failed(end)) {
      hand(beginning, end);
    }
  }

  /**
   * Handles the end of a job. The first success after a failed job is sent too, because it revokes the failure as the
   * application's last result.
   */
  public void jobEnded(Record record) {
    Record beginning = held.isEmpty() ? null : held.remove(record.change.subject);
    if (beginning == null || lastJobFailed || failed(record)) {
      lastJobFailed = failed(record);
      hand(beginning, record);
    }
  }

  /** Sends the start records of running jobs and stages when the application ends. */
  public void end() {
    for (Record beginning : new ArrayList<>(held.values())) {
      destination.hand(beginning);
    }
    held.clear();
  }

  private void hand(Record beginning, Record end) {
    if (beginning != null) {
      destination.hand(beginning);
    }
    destination.hand(end);
  }

  private static boolean failed(Record end) {
    return end.priority != Priority.ROUTINE;
  }

  private static Record batchStarted(String query, Properties local) {
    String[] values = new String[CARRIED.length];
    for (int i = 0; i < CARRIED.length; i++) {
      values[i] = local.getProperty(CARRIED[i]);
    }
    return new Record(
        "batch_started",
        Priority.ROUTINE,
        RestoreState.Change.add("batch:" + query, RestoreState.Rank.WORK),
        json -> {
          json.writeObjectFieldStart("properties");
          for (int i = 0; i < CARRIED.length; i++) {
            if (values[i] != null) {
              json.writeStringField(CARRIED[i], values[i]);
            }
          }
          json.writeEndObject();
        });
  }
}
