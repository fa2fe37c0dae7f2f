package io.sparkevents.queue;

import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;

/**
 * Decides when to wake the writer thread. Used under the {@link HandoffQueue}'s lock.
 *
 * <p>Waking a thread costs the listener more than the rest of a callback. So a busy writer polls for a while before it
 * sleeps, and is not woken meanwhile unless a thread waits for the answer.
 */
final class WriterWakeup {
  private static final long POLL_NANOS = 2_000_000;
  private static final int POLLS = 3;

  private final Condition condition;
  private final boolean prompt;
  private int pollsLeft;
  private boolean asleep;
  private boolean woken;

  /**
   * @param prompt true if the writer must not poll, because a thread waits for most records
   */
  WriterWakeup(Condition condition, boolean prompt) {
    this.condition = condition;
    this.prompt = prompt;
  }

  /** Signals a new record; {@code awaited}: a thread waits for the answer. */
  void signal(boolean awaited) {
    if (asleep || awaited) {
      condition.signal();
    }
  }

  /** Wakes the writer now or, if it is busy, before its next wait. */
  void wake() {
    woken = true;
    condition.signalAll();
  }

  /** Notes that the writer got a record, so that it polls for more. */
  void busy() {
    pollsLeft = POLLS;
  }

  /** Waits on the writer thread for a signal, up to {@code millis}; releases the lock meanwhile. */
  void await(long millis) throws InterruptedException {
    if (woken) {
      return;
    }
    if (!prompt && pollsLeft > 0) {
      pollsLeft--;
      condition.awaitNanos(POLL_NANOS);
      return;
    }
    asleep = true;
    try {
      condition.await(millis, TimeUnit.MILLISECONDS);
    } finally {
      asleep = false;
    }
  }

  /** Clears the wake-up once the writer has handled it. */
  void seen() {
    woken = false;
  }
}
