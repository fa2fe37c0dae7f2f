package io.sparkevents;

import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.function.BooleanSupplier;

/**
 * How far the sidecar has got with the records, and who waits for that; used under the {@link
 * HandoffQueue}'s lock.
 */
final class Progress {
  private final Condition moved;
  /** Up to here they have been written, or are being written. */
  private long takenThrough;
  /** Up to here the sidecar needs nothing any more. */
  private long ackedThrough;
  /** Up to here every reporter has answered, though something may be held back for a later event. */
  private long answeredThrough;
  /** From here on, no other than the present sidecar can have got them. */
  private long ownFrom = 1;

  Progress(Condition moved) {
    this.moved = moved;
  }

  void taken(long seq) {
    takenThrough = Math.max(takenThrough, seq);
  }

  /** A new sidecar has taken the place of one that had got records up to {@code seq} at most. */
  void startsAnew(long seq) {
    ownFrom = seq + 1;
  }

  /**
   * Whether the sidecar has read everything that was written to it, so that its pipe is empty: it has answered for the
   * last record, and what a predecessor has answered for does not count.
   */
  boolean hasReadAll() {
    return takenThrough >= ownFrom && answeredThrough >= takenThrough;
  }

  /** False where that is nothing new. */
  boolean acknowledged(long seq) {
    if (seq <= ackedThrough) {
      return false;
    }
    ackedThrough = seq;
    answered(seq);
    return true;
  }

  void answered(long seq) {
    answeredThrough = Math.max(answeredThrough, seq);
    moved.signalAll();
  }

  boolean isAnswered(long seq) {
    return answeredThrough >= seq;
  }

  /** Something else has happened that somebody may wait for. */
  void note() {
    moved.signalAll();
  }

  /** Waits for it, at most {@code millis}; the lock is let go meanwhile. */
  void await(BooleanSupplier what, long millis) throws InterruptedException {
    long left = TimeUnit.MILLISECONDS.toNanos(millis);
    while (!what.getAsBoolean() && left > 0) {
      left = moved.awaitNanos(left);
    }
  }
}
