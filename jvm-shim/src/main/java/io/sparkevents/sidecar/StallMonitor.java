package io.sparkevents.sidecar;

import io.sparkevents.queue.RecordQueue;
import io.sparkevents.queue.Threads;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Kills a stalled sidecar, so that the supervisor starts a new one.
 *
 * <p>A sidecar is stalled if records wait and the sidecar reads none for {@code events.sidecar.stall-timeout}. The
 * monitor has its own thread, because the supervisor may be blocked while the process does not read its pipe.
 */
public final class StallMonitor {
  private static final Logger LOG = LoggerFactory.getLogger(Sidecar.class);
  private static final int LOOKS = 6;

  private final RecordQueue queue;
  private final long timeoutMillis;
  private final long periodMillis;
  private final LongSupplier clock;
  private final ScheduledExecutorService timer =
      Executors.newSingleThreadScheduledExecutor(work -> Threads.daemon("stall-monitor", work));
  /** Action that kills the watched sidecar; null while no sidecar is running. */
  private volatile Runnable kill;
  private volatile long lastLook;

  public StallMonitor(RecordQueue queue, long timeoutMillis) {
    this(queue, timeoutMillis, System::nanoTime);
  }

  /** @param clock monotonic time in nanoseconds */
  public StallMonitor(RecordQueue queue, long timeoutMillis, LongSupplier clock) {
    this.queue = queue;
    this.timeoutMillis = timeoutMillis;
    this.clock = clock;
    periodMillis = Math.max(1, timeoutMillis / LOOKS);
    lastLook = clock.getAsLong();
  }

  public void start() {
    try {
      timer.scheduleWithFixedDelay(this::lookAndContinue, periodMillis, periodMillis, TimeUnit.MILLISECONDS);
    } catch (Throwable noThread) {
      LOG.warn(
          "[spark-events] cannot start the stall monitor; a stalled sidecar will not be restarted;"
              + " raise the thread limit of the driver's process");
    }
  }

  public void stop() {
    timer.shutdownNow();
  }

  /** Watches the sidecar that {@code kill} kills; null stops watching. */
  public void watch(Runnable kill) {
    this.kill = kill;
  }

  private void lookAndContinue() {
    try {
      look();
    } catch (Throwable defect) {
      // Memory is low, or an appender throws. An exception would end the timer, and later stalls would go unnoticed.
    }
  }

  /**
   * Kills the sidecar if it has stalled. A look that is late by more than one period is skipped: after a pause of the
   * whole JVM, the messages of a healthy sidecar may still wait for the reading thread.
   */
  public void look() {
    Runnable present = kill;
    boolean hasStalled = present != null && queue.progress.hasStalledFor(timeoutMillis);
    // Read the clock last, so that a pause during this look counts as a delay.
    long now = clock.getAsLong();
    boolean isLate = now - lastLook > 2 * TimeUnit.MILLISECONDS.toNanos(periodMillis);
    lastLook = now;
    if (hasStalled && !isLate) {
      kill = null;
      try {
        LOG.warn(
            "[spark-events] the sidecar read no record for {} ms (spark.events.sidecar.stall-timeout) while {} are queued;"
                + " killing it, restarting it and resending them",
            timeoutMillis,
            queue.size());
      } finally {
        present.run();
      }
    }
  }
}
