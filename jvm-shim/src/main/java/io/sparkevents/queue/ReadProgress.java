package io.sparkevents.queue;

import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;

/** How far the sidecar has read, for the stall check. */
public final class ReadProgress {
  private final Object lock;
  private final LongSupplier clock;
  /** The newest record to read. */
  private long newestSeq;
  /** The newest record that the current sidecar has read. */
  private long readSeq;
  /** Time of the sidecar's last read, or of the first unread record if that time is later. */
  private long unreadSinceNanos;

  /** @param lock the queue's lock; methods without {@code synchronized} need it */
  ReadProgress(Object lock, LongSupplier clock) {
    this.lock = lock;
    this.clock = clock;
  }

  /** Notes a new record. */
  void added(long seq) {
    if (!hasUnread()) {
      unreadSinceNanos = clock.getAsLong();
    }
    newestSeq = seq;
  }

  /** Notes that a record will not be written. */
  void removed(long seq, long nextNewestSeq) {
    newestSeq = seq == newestSeq ? nextNewestSeq : newestSeq;
  }

  /**
   * Notes that a new sidecar will read the records.
   *
   * @param ackedSeq the newest record that it does not receive
   */
  void restarted(long ackedSeq, boolean hasRecords) {
    readSeq = ackedSeq;
    newestSeq = hasRecords ? newestSeq : ackedSeq;
    unreadSinceNanos = clock.getAsLong();
  }

  private boolean hasUnread() {
    return newestSeq > readSeq;
  }

  /** Notes that the sidecar has read the records up to {@code seq}. */
  public void read(long seq) {
    synchronized (lock) {
      if (seq > readSeq) {
        readSeq = seq;
        unreadSinceNanos = clock.getAsLong();
      }
    }
  }

  /** Whether the sidecar has unread records and has read none for {@code millis}. */
  public boolean hasStalledFor(long millis) {
    synchronized (lock) {
      return hasUnread() && clock.getAsLong() - unreadSinceNanos >= TimeUnit.MILLISECONDS.toNanos(millis);
    }
  }
}
