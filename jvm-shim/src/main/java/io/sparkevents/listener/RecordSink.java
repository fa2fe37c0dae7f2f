package io.sparkevents.listener;

import io.sparkevents.queue.Record;

/** Receiver of a listener's records. */
public interface RecordSink {
  /** Enqueues one record; waits for the reporters' answers if the settings require this. */
  void hand(Record record);

  /** Whether successful jobs and stages of micro-batches are recorded. */
  default boolean takesMicroBatches() {
    return true;
  }

  /** Whether running tasks and executors are tracked, for deadlines and lost executors. */
  default boolean tracksWork() {
    return true;
  }

  /**
   * Minimum time between two records of a running application's totals, in milliseconds; 0 for only the final record.
   */
  default long summaryIntervalMillis() {
    return 0;
  }

  /**
   * Enqueues the record that the application has ended; unless it is provisional, delivers all records before
   * returning.
   */
  void end(ApplicationEnd end);
}
