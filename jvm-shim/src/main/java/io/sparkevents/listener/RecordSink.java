package io.sparkevents.listener;

import io.sparkevents.queue.Record;

/** Where a listener's records go. */
public interface RecordSink {
  /** Takes one more; waits until it has arrived, where somebody wants that. */
  void hand(Record record);

  /** Whether jobs and stages of micro-batches that succeed are recorded. */
  default boolean takesMicroBatches() {
    return true;
  }

  /** Takes the end of the application; delivers everything now, unless that end is provisional. */
  void end(ApplicationEnd end);
}
