package io.sparkevents.queue;

import java.util.concurrent.TimeUnit;

/** Deadline for the shutdown of an application; the deadline is set when the shutdown begins. */
public final class Deadline {
  private static final long NEVER = TimeUnit.DAYS.toMillis(10_000);

  private volatile boolean set;
  private volatile long nanos;

  public void setAfter(long millis) {
    nanos = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(millis);
    set = true;
  }

  public boolean isSet() {
    return set;
  }

  public boolean hasPassed() {
    return millisLeft() == 0;
  }

  /** Returns the remaining milliseconds: 0 after the deadline, a very large number while no deadline is set. */
  public long millisLeft() {
    return set ? Math.max(0, TimeUnit.NANOSECONDS.toMillis(nanos - System.nanoTime())) : NEVER;
  }
}
