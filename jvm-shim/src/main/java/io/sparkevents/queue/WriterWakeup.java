package io.sparkevents.queue;

import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;

/**
 * Decides when the writer thread is woken; used under the {@link HandoffQueue}'s lock.
 *
 * <p>Waking a thread costs the listener more than all the rest of a callback. So a writer that was busy polls for a while
 * before it sleeps, and is not woken meanwhile, unless a thread waits for the answer.
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
   * @param prompt whether the writer never polls, because a thread waits for most records
   */
  WriterWakeup(Condition condition, boolean prompt) {
    this.condition = condition;
    this.prompt = prompt;
  }

  /** A record was added; {@code awaited}: a thread waits for it. */
  void signal(boolean awaited) {
    if (asleep || awaited) {
      condition.signal();
    }
  }

  /** The writer must look up: now or, if it is busy, before it waits next. */
  void wake() {
    woken = true;
    condition.signalAll();
  }

  /** The writer got a record, so more may come soon. */
  void busy() {
    pollsLeft = POLLS;
  }

  /** Waits, as the writer, for a signal, at most {@code millis}. Releases the lock meanwhile. */
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

  /** The writer has looked at everything. */
  void seen() {
    woken = false;
  }
}
