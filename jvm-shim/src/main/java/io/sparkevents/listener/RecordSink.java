package io.sparkevents.listener;

import io.sparkevents.queue.Record;

/** Receiver of a listener's records. */
public interface RecordSink {
  /** Enqueues one record; waits for the reporters' answers if the settings require it. */
  void hand(Record record);

  /** Whether successful jobs and stages of micro-batches are recorded. */
  default boolean takesMicroBatches() {
    return true;
  }

  /** Whether running tasks and executors are tracked, for deadlines and lost executors. */
  default boolean tracksWork() {
    return true;
  }

  /** Minimum time between two totals of a running application, in milliseconds; 0 for none before its end. */
  default long summaryIntervalMillis() {
    return 0;
  }

  /** Enqueues the end of the application. Delivers all records now, unless the end is provisional. */
  void end(ApplicationEnd end);
}
