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
 * Holds back the records of jobs and stages of micro-batches, which make no event unless they fail: a stream with short
 * triggers would fill the queue with them. One record says which batch a query is at.
 *
 * <p>A job or stage that fails is recorded from its beginning, just before its failure. Used by the listener's thread alone.
 */
public final class MicroBatchWork {
  private static final String QUERY = "sql.streaming.queryId";
  private static final String BATCH = "streaming.sql.batchId";
  private static final String[] CARRIED = {QUERY, BATCH, "spark.sql.streaming.multipleWatermarkPolicy"};
  /** Jobs, stages and queries beyond this many: the oldest is forgotten. Spark may have dropped its end. */
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
  /** The beginnings of jobs and stages that run, by subject. */
  private final Map<String, Record> held = new Bounded<>();
  /** The batch that was recorded last, by query. */
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

  /** A job, or an attempt of a stage, begins. */
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
   * @param records changes in its tasks, where these are recorded, and last its end
   */
  public void stageEnded(List<Record> records) {
    Record end = records.get(records.size() - 1);
    records.subList(0, records.size() - 1).forEach(destination::hand);
    Record beginning = held.isEmpty() ? null : held.remove(end.change.subject);
    if (beginning == null || failed(end)) {
      hand(beginning, end);
    }
  }

  /** The first success behind a failed job is recorded, too: the failure is not the application's last word any more. */
  public void jobEnded(Record record) {
    Record beginning = held.isEmpty() ? null : held.remove(record.change.subject);
    if (beginning == null || lastJobFailed || failed(record)) {
      lastJobFailed = failed(record);
      hand(beginning, record);
    }
  }

  /** The application ends: jobs and stages that still run are recorded. */
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
