package io.sparkevents.sidecar;

import io.sparkevents.queue.HandoffQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Kills a sidecar that reads no record for {@code events.sidecar.stall-timeout} while records wait, so that another one is
 * started. It has a thread of its own, because the writer may be blocked in the pipe of a process that does not read.
 */
public final class StallMonitor {
  private static final int LOOKS = 6;
  private static final long JOIN_MILLIS = 50;

  private final HandoffQueue queue;
  private final long timeoutMillis;
  private final Logger log;
  private final CountDownLatch stopped = new CountDownLatch(1);
  /** Null while no sidecar is fed. */
  private volatile Runnable kill;
  /** Null: the system had no thread left. */
  private Thread thread;

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
      Thread looking = new Thread(this::run, "spark-events-stall-monitor");
      looking.setDaemon(true);
      looking.start();
      thread = looking;
    } catch (Throwable noThread) {
      log.warn("spark-events: no thread left to watch the sidecar; a sidecar that freezes is not restarted");
    }
  }

  public void stop() throws InterruptedException {
    stopped.countDown();
    if (thread != null) {
      thread.join(JOIN_MILLIS);
    }
  }

  /** Watches the sidecar that is ended by {@code kill}; null: none is fed at the moment. */
  public void watch(Runnable kill) {
    this.kill = kill;
  }

  private void run() {
    try {
      while (!stopped.await(Math.max(1, timeoutMillis / LOOKS), TimeUnit.MILLISECONDS)) {
        look();
      }
    } catch (InterruptedException end) {
      Thread.currentThread().interrupt();
    }
  }

  public void look() {
    Runnable present = kill;
    if (present != null && queue.hasStalledFor(timeoutMillis)) {
      kill = null;
      log.warn(
          "spark-events: the sidecar has read no record for {} ms (events.sidecar.stall-timeout) while {} are held;"
              + " killing it, its successor gets them again",
          timeoutMillis,
          queue.size());
      present.run();
    }
  }
}
