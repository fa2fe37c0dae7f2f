package io.sparkevents.sidecar;

import java.util.ArrayDeque;
import java.util.concurrent.TimeUnit;

/** Limits the number of restarts of the sidecar, and computes the pause before each restart. */
public final class Restarts {
  private static final long FIRST_PAUSE_MILLIS = 100;
  private static final long LONGEST_PAUSE_MILLIS = 5_000;
  private static final int MOST_DOUBLINGS = 20;

  private final int most;
  private final long windowMillis;
  private final ArrayDeque<Long> recent = new ArrayDeque<>();
  private volatile int count;

  /**
   * @param most maximum number of restarts within {@code windowMillis}; the next death is final
   */
  public Restarts(int most, long windowMillis) {
    this.most = most;
    this.windowMillis = windowMillis;
  }

  /**
   * Returns the pause before the next restart, which doubles with each death in the window; negative if no restart
   * remains.
   */
  public long nextPauseMillis(long nowNanos) {
    long horizon = nowNanos - TimeUnit.MILLISECONDS.toNanos(windowMillis);
    while (!recent.isEmpty() && recent.peekFirst() - horizon < 0) {
      recent.pollFirst();
    }
    if (recent.size() >= most) {
      return -1;
    }
    long pause = FIRST_PAUSE_MILLIS << Math.min(MOST_DOUBLINGS, recent.size());
    recent.addLast(nowNanos);
    count++;
    return Math.min(LONGEST_PAUSE_MILLIS, pause);
  }

  /** Returns the number of restarts since the start of the application. */
  public int count() {
    return count;
  }

  /** Returns the number of deaths and the limit, for the message that reports the last death. */
  String describe() {
    int deaths = recent.size() + 1;
    return (deaths == 1 ? "once" : deaths + " times within " + windowMillis / 1_000 + " s")
        + " (spark.events.sidecar.restarts.max = " + most + ")";
  }
}
