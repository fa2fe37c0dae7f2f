package io.sparkevents.sidecar;

import java.util.ArrayDeque;
import java.util.concurrent.TimeUnit;

/** How often the sidecar may be started again, and after what pause. */
public final class Restarts {
  private static final long FIRST_PAUSE_MILLIS = 100;
  private static final long LONGEST_PAUSE_MILLIS = 5_000;
  private static final int MOST_DOUBLINGS = 20;

  private final int most;
  private final long windowMillis;
  private final ArrayDeque<Long> recent = new ArrayDeque<>();
  private volatile int count;

  /** @param most so many within {@code windowMillis}; the next death is the last */
  public Restarts(int most, long windowMillis) {
    this.most = most;
    this.windowMillis = windowMillis;
  }

  /** The pause before the next start, doubling with each death in the window; negative: no more. */
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

  /** How often it was started again, from the first time on. */
  public int count() {
    return count;
  }

  /** For the message that says why it is not started again. */
  String describe() {
    int deaths = recent.size() + 1;
    return (deaths == 1 ? "once" : deaths + " times within " + windowMillis / 1_000 + " s")
        + " (events.sidecar.restarts.max = " + most + ")";
  }
}
