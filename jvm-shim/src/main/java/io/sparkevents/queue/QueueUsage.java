package io.sparkevents.queue;

/**
 * How full the queue is.
 *
 * <p>Records in flight do not count, because a queue without space evicts them before it drops a waiting record.
 */
public final class QueueUsage {
  private final Object lock;
  private final QueueConfig config;
  private final Waiting waiting;
  private final InFlight inFlight;
  private volatile boolean wasNearlyFull;

  /** @param lock the queue's lock; methods without {@code synchronized} need it */
  QueueUsage(Object lock, QueueConfig config, Waiting waiting, InFlight inFlight) {
    this.lock = lock;
    this.config = config;
    this.waiting = waiting;
    this.inFlight = inFlight;
  }

  /**
   * Returns the used fraction of the capacity or of the bytes, whichever is larger, from 0 to 1; at 1, records are
   * dropped.
   */
  public double usedFraction() {
    synchronized (lock) {
      // After the death of a sidecar, more bytes may wait than the limit.
      return Math.min(1, Math.max((double) unwritten() / config.capacity, (double) waiting.bytes() / config.bytesWaiting));
    }
  }

  /** Returns the number of records that the sidecar has received and not acknowledged, without evicted records. */
  public int unacknowledged() {
    synchronized (lock) {
      return inFlight.size() - inFlight.writing();
    }
  }

  /** Whether the queue was ever 90 % full. */
  public boolean wasNearlyFull() {
    return wasNearlyFull;
  }

  void recordAdded() {
    if (!wasNearlyFull && (unwritten() >= config.nearlyFull || waiting.bytes() >= config.bytesNearlyFull)) {
      wasNearlyFull = true;
    }
  }

  /** Returns the number of records that cannot be evicted. */
  private int unwritten() {
    return waiting.size() + inFlight.writing();
  }
}
