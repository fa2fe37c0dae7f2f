package io.sparkevents.queue;

import java.util.concurrent.TimeUnit;

/** The longest duration of one step, counted from the moment at which it is set; a shutdown's, from its beginning. */
public final class Timeout {
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

  /** Returns the remaining milliseconds: 0 after the timeout, a very large number before it is set. */
  public long millisLeft() {
    return set ? Math.max(0, TimeUnit.NANOSECONDS.toMillis(nanos - System.nanoTime())) : NEVER;
  }
}
