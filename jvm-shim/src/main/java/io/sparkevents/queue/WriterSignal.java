package io.sparkevents.queue;

import java.util.function.BooleanSupplier;

/**
 * Wakes the writer thread.
 *
 * <p>Waking a thread takes the listener longer than all other work of a callback. Therefore a busy writer polls for a
 * while before it sleeps. While it polls, the listener does not wake it, unless a thread waits for the answer.
 */
public final class WriterSignal {
  private static final long POLL_MILLIS = 2;
  private static final int POLLS = 3;

  private final Object lock;
  /** Remaining number of polls before the writer sleeps. */
  private int pollsLeft;
  private boolean asleep;
  /** Whether a thread woke the writer while the writer was busy; if so, the writer skips its next wait. */
  private boolean woken;

  /** @param lock the queue's lock and monitor; methods without {@code synchronized} need it */
  WriterSignal(Object lock) {
    this.lock = lock;
  }

  /** Wakes the writer now or, if it is busy, before its next wait. */
  public void wake() {
    synchronized (lock) {
      woken = true;
      lock.notifyAll();
    }
  }

  /** Wakes the writer if it sleeps, because there is a record. */
  void recordAdded() {
    if (asleep) {
      lock.notifyAll();
    }
  }

  /** Notes that the writer had records to write. */
  void wasBusy() {
    pollsLeft = POLLS;
  }

  /** Waits up to {@code millis} until {@code hasWork} or {@link #wake}; less long if the writer was busy. */
  void awaitWork(BooleanSupplier hasWork, long millis) throws InterruptedException {
    asleep = pollsLeft == 0;
    await(() -> woken || hasWork.getAsBoolean(), asleep ? millis : Math.min(POLL_MILLIS, millis));
    asleep = false;
    pollsLeft = Math.max(0, pollsLeft - 1);
  }

  /** Forgets earlier calls of {@link #wake}. */
  void clear() {
    woken = false;
  }

  /** Waits up to {@code millis} until the condition holds. */
  void await(BooleanSupplier condition, long millis) throws InterruptedException {
    Timeout timeout = new Timeout();
    timeout.setAfter(millis);
    while (!condition.getAsBoolean() && !timeout.hasPassed()) {
      lock.wait(timeout.millisLeft() + 1);
    }
  }
}
