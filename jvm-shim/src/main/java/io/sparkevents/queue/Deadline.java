package io.sparkevents.queue;

import java.util.concurrent.TimeUnit;

/** Until when an application's end may take; there is none before it begins. */
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

  /** 0 when it has passed. */
  public long millisLeft() {
    return set ? Math.max(0, TimeUnit.NANOSECONDS.toMillis(nanos - System.nanoTime())) : NEVER;
  }
}
