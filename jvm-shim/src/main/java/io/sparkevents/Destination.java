package io.sparkevents;

/** Where a listener's records go. */
interface Destination {
  /** Takes one more; waits until it has arrived, where somebody wants that. */
  void hand(Record record);

  /** Whether jobs and stages of micro-batches that succeed are recorded. */
  default boolean takesMicroBatches() {
    return true;
  }

  /** The application is over, and this is the last record: everything is to be delivered now. */
  void close(Record last);
}
