package io.sparkevents.sidecar;

import io.sparkevents.queue.HandoffQueue;
import io.sparkevents.queue.Threads;
import java.util.concurrent.CountDownLatch;
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
  private static final int LOOKS = 6;

  private final HandoffQueue queue;
  private final long timeoutMillis;
  private final Logger log;
  private final CountDownLatch stopped = new CountDownLatch(1);
  /** Action that kills the watched sidecar; null while no sidecar is running. */
  private volatile Runnable kill;

  public StallMonitor(HandoffQueue queue, long timeoutMillis) {
    this(queue, timeoutMillis, LoggerFactory.getLogger(Sidecar.class));
  }

  public StallMonitor(HandoffQueue queue, long timeoutMillis, Logger log) {
    this.queue = queue;
    this.timeoutMillis = timeoutMillis;
    this.log = log;
  }

  public void start() {
    try {
      Threads.start("stall-monitor", this::run);
    } catch (Throwable noThread) {
      log.warn(
          "spark-events: cannot start the stall monitor; a stalled sidecar will not be restarted;"
              + " raise the thread limit of the driver's process");
    }
  }

  public void stop() {
    stopped.countDown();
  }

  /** Watches the sidecar that {@code kill} kills; null stops watching. */
  public void watch(Runnable kill) {
    this.kill = kill;
  }

  private void run() throws InterruptedException {
    while (!stopped.await(Math.max(1, timeoutMillis / LOOKS), TimeUnit.MILLISECONDS)) {
      look();
    }
  }

  public void look() {
    Runnable present = kill;
    if (present != null && queue.hasStalledFor(timeoutMillis)) {
      kill = null;
      log.warn(
          "spark-events: the sidecar read no record for {} ms (spark.events.sidecar.stall-timeout) while {} are queued;"
              + " killing it, restarting it and resending them",
          timeoutMillis,
          queue.size());
      present.run();
    }
  }
}
