package io.sparkevents;

import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;

/**
 * How the writer is told that there is something to write; used under the {@link HandoffQueue}'s lock.
 *
 * <p>To wake a thread costs the listener more than all the rest. So a writer that was busy just now looks by itself for
 * a while, unless somebody waits for what it is to write.
 */
final class Bell {
  private static final long LINGER_NANOS = 500_000;
  private static final int LINGERS = 40;

  private final Condition rung;
  private final boolean prompt;
  private int lingers;
  private boolean idle;
  private boolean asleep;
  private boolean woken;

  /**
   * @param prompt whether the writer never looks by itself, because for most of what comes somebody waits
   */
  Bell(Condition rung, boolean prompt) {
    this.rung = rung;
    this.prompt = prompt;
  }

  /** There is a record; {@code atOnce}: somebody waits for it. */
  void ring(boolean atOnce) {
    if (asleep || atOnce) {
      rung.signal();
    }
  }

  /** There is something else to look at: now or, if the writer is busy, when it would wait next. */
  void wake() {
    woken = true;
    rung.signalAll();
  }

  /** Whether the writer has nothing to write. */
  boolean isWriterIdle() {
    return idle;
  }

  /** The writer has got something: more may come soon. */
  void busy() {
    lingers = LINGERS;
  }

  /** For the writer: until it is rung or has to look, at most {@code millis}; the lock is let go meanwhile. */
  void await(long millis) throws InterruptedException {
    if (woken) {
      return;
    }
    idle = true;
    try {
      if (!prompt && lingers > 0) {
        lingers--;
        rung.awaitNanos(LINGER_NANOS);
        return;
      }
      asleep = true;
      rung.await(millis, TimeUnit.MILLISECONDS);
    } finally {
      idle = false;
      asleep = false;
    }
  }

  /** For the writer: it looks at everything now. */
  void heard() {
    woken = false;
  }
}
