package io.sparkevents;

import java.util.ArrayDeque;
import java.util.concurrent.TimeUnit;

/** How often the sidecar may be started again, and after what pause. */
final class Restarts {
  static final int MOST = 10;
  static final long WINDOW_MINUTES = 10;
  private static final long FIRST_PAUSE_MILLIS = 100;
  private static final long LONGEST_PAUSE_MILLIS = 30_000;

  private final ArrayDeque<Long> recent = new ArrayDeque<>();
  private int count;

  /** The pause before the next start, doubling with each death in the window; negative: no more. */
  long nextPauseMillis(long nowNanos) {
    long horizon = nowNanos - TimeUnit.MINUTES.toNanos(WINDOW_MINUTES);
    while (!recent.isEmpty() && recent.peekFirst() - horizon < 0) {
      recent.pollFirst();
    }
    if (recent.size() >= MOST) {
      return -1;
    }
    long pause = Math.min(LONGEST_PAUSE_MILLIS, FIRST_PAUSE_MILLIS << recent.size());
    recent.addLast(nowNanos);
    count++;
    return pause;
  }

  int count() {
    return count;
  }

  @Override
  public String toString() {
    return (recent.size() + 1) + " times within " + WINDOW_MINUTES + " minutes";
  }
}
