package io.sparkevents.sidecar;

import io.sparkevents.queue.HandoffQueue;
import io.sparkevents.queue.Threads;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
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

  private final HandoffQueue queue;
  private final long timeoutMillis;
  private final ScheduledExecutorService timer =
      Executors.newSingleThreadScheduledExecutor(work -> Threads.daemon("stall-monitor", work));
  /** Action that kills the watched sidecar; null while no sidecar is running. */
  private volatile Runnable kill;

  public StallMonitor(HandoffQueue queue, long timeoutMillis) {
    this.queue = queue;
    this.timeoutMillis = timeoutMillis;
  }

  public void start() {
    long period = Math.max(1, timeoutMillis / LOOKS);
    try {
      timer.scheduleWithFixedDelay(this::look, period, period, TimeUnit.MILLISECONDS);
    } catch (Throwable noThread) {
      LOG.warn(
          "spark-events: cannot start the stall monitor; a stalled sidecar will not be restarted;"
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

  public void look() {
    Runnable present = kill;
    if (present != null && queue.hasStalledFor(timeoutMillis)) {
      kill = null;
      try {
        LOG.warn(
            "spark-events: the sidecar read no record for {} ms (spark.events.sidecar.stall-timeout) while {} are queued;"
                + " killing it, restarting it and resending them",
            timeoutMillis,
            queue.size());
      } finally {
        present.run();
      }
    }
  }
}
