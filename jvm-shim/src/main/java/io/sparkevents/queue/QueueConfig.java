package io.sparkevents.queue;

import java.util.function.LongSupplier;

/** Limits and clock of a {@link RecordQueue}; immutable. */
public final class QueueConfig {
  private static final int MOST_PER_BATCH = 64;
  /** The driver's heap divided by this number is the limit for the bytes in flight. */
  private static final int HEAP_PARTS = 16;
  /** Reciprocal of the capacity's part that stays free for new records. */
  private static final int RESERVE_PARTS = 8;

  /** Maximum number of records, waiting and in flight together. */
  public final int capacity;
  /** Maximum size of the records in flight, in bytes. */
  final long bytesInFlight;
  /** Maximum size of the waiting records, in bytes. */
  final long bytesWaiting;
  /** Monotonic time in nanoseconds, for the stall check. */
  final LongSupplier clock;
  /** Maximum number of records to write at once. None of them can be evicted, so a small queue has small batches. */
  final int batch;
  /** Number of records above which the writer evicts, so that the listener finds space without an eviction. */
  final int evictAbove;
  /** Number of records, not yet written, with which the queue is 90 % full. */
  final int nearlyFull;
  /** Size of the waiting records, in bytes, with which the queue is 90 % full. */
  final long bytesNearlyFull;

  private QueueConfig(int capacity, long bytesInFlight, LongSupplier clock) {
    this.capacity = capacity;
    this.bytesInFlight = bytesInFlight;
    this.clock = clock;
    bytesWaiting = 2 * bytesInFlight;
    batch = Math.max(1, Math.min(MOST_PER_BATCH, capacity / RESERVE_PARTS));
    evictAbove = capacity - capacity / RESERVE_PARTS;
    nearlyFull = (int) ((9L * capacity + 9) / 10);
    bytesNearlyFull = bytesWaiting / 10 * 9;
  }

  /** Returns the limits of a queue in this JVM. */
  public static QueueConfig of(int capacity) {
    return new QueueConfig(capacity, Runtime.getRuntime().maxMemory() / HEAP_PARTS, System::nanoTime);
  }

  /** @param bytes limit for the records in flight; the limit for waiting records is twice that */
  public QueueConfig withBytes(long bytes) {
    return new QueueConfig(capacity, bytes, clock);
  }

  public QueueConfig withClock(LongSupplier clock) {
    return new QueueConfig(capacity, bytesInFlight, clock);
  }
}
