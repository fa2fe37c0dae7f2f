package io.sparkevents;

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Says that a sidecar takes no records while some are dropped. The writer cannot: it is blocked in the pipe of a
 * process that does not read. Looks now and then, on a thread of its own, for Spark's is not to wait for the log.
 */
final class Standstill {
  private static final long PATIENCE_MILLIS = 30_000;
  private static final int LOOKS = 6;
  private static final long END_MILLIS = 50;

  private final HandoffQueue queue;
  private final long patienceMillis;
  private final Logger log;
  private final CountDownLatch stopped = new CountDownLatch(1);
  /** Null: there is none. */
  private Thread thread;
  private boolean said;

  Standstill(HandoffQueue queue) {
    this(queue, PATIENCE_MILLIS, LoggerFactory.getLogger(Sidecar.class));
  }

  Standstill(HandoffQueue queue, long patienceMillis, Logger log) {
    this.queue = queue;
    this.patienceMillis = patienceMillis;
    this.log = log;
  }

  void start() {
    try {
      Thread looking = new Thread(this::run, "spark-events-standstill");
      looking.setDaemon(true);
      looking.start();
      thread = looking;
    } catch (Throwable noThread) {
      // Only a line of the log depends on it.
      log.debug("spark-events: nobody looks whether the sidecar takes records", noThread);
    }
  }

  void stop() throws InterruptedException {
    stopped.countDown();
    if (thread != null) {
      thread.join(END_MILLIS);
    }
  }

  private void run() {
    try {
      while (!stopped.await(patienceMillis / LOOKS, TimeUnit.MILLISECONDS)) {
        look();
      }
    } catch (InterruptedException end) {
      Thread.currentThread().interrupt();
    }
  }

  /** Says what has changed since the last look. */
  void look() {
    if (queue.isClosed()) {
      return;
    }
    boolean stands = queue.hasStoodFor(patienceMillis);
    if (stands && !said) {
      log.warn(
          "spark-events: the sidecar has taken no record for {} s, and the queue is full: records are being dropped",
          TimeUnit.MILLISECONDS.toSeconds(patienceMillis));
    } else if (said && !stands) {
      log.warn("spark-events: the sidecar takes records again");
    }
    said = stands;
  }
}
