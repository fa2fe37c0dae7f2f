package io.sparkevents.sidecar;

import io.sparkevents.config.Settings;
import io.sparkevents.listener.Failures;
import io.sparkevents.metrics.Statistics;
import io.sparkevents.queue.RecordQueue;
import io.sparkevents.queue.Timeout;
import io.sparkevents.wire.MessageReader;
import io.sparkevents.wire.RecordWriter;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Work of the sidecar's thread: starts the process, writes the records to it, and starts the next one if it dies.
 *
 * <p>A failure in this class never reaches Spark. In the worst case, the supervisor closes the queue, and the driver's
 * log reports once that records are dropped.
 */
final class Supervisor implements Runnable {
  private static final Logger LOG = LoggerFactory.getLogger(Sidecar.class);
  /** Longest pause before a restart of the sidecar while the application is ending. */
  private static final long LONGEST_LAST_PAUSE_MILLIS = 1_000;
  /** Longest wait for a record before the writer looks whether the process is still alive. */
  private static final long IDLE_MILLIS = 1_000;

  private final Settings settings;
  private final RecordQueue queue;
  private final Statistics statistics;
  private final Timeout timeout;
  private final MessageReader messages;
  private final Launcher launcher;
  private final RecordWriter writer;
  private final StallMonitor stallMonitor;
  private final Restarts restarts;
  private final CountDownLatch firstStart = new CountDownLatch(1);
  private final CountDownLatch finishing = new CountDownLatch(1);

  private volatile String failure;
  private volatile boolean ready;
  private volatile boolean late;

  Supervisor(
      Settings settings, RecordQueue queue, Statistics statistics, Timeout timeout, MessageReader messages,
      Launcher launcher, RecordWriter writer, StallMonitor stallMonitor) {
    this.settings = settings;
    this.queue = queue;
    this.statistics = statistics;
    this.timeout = timeout;
    this.messages = messages;
    this.launcher = launcher;
    this.writer = writer;
    this.stallMonitor = stallMonitor;
    restarts = new Restarts(settings.mostRestarts, settings.restartsWindowMillis);
  }

  /** Returns the number of restarts since the start of the application. */
  int restarts() {
    return restarts.count();
  }

  /** Waits until the sidecar is ready; returns the reason if it fails to start, or null. */
  String awaitStarted() throws InterruptedException {
    return firstStart.await(launcher.patience(), TimeUnit.MILLISECONDS)
        ? failure
        : "The sidecar was not ready in time (spark.events.sidecar.start-timeout).";
  }

  /** Ends a pause before a restart, because the application is ending. */
  void finish() {
    finishing.countDown();
  }

  /** Notes that the sidecar did not end in time. */
  void setLate() {
    late = true;
  }

  boolean isLate() {
    return late;
  }

  /** Whether a sidecar was ever ready. */
  boolean wasReady() {
    return ready;
  }

  @Override
  public void run() {
    try {
      supervise();
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
    } catch (Throwable defect) {
      failure = "a defect in the shim: " + Failures.describe(defect);
      LOG.error("[spark-events] no more events will be reported; the job continues: {}; report this", failure, defect);
    } finally {
      queue.close();
      SidecarProcess last = launcher.process();
      if (last != null) {
        last.destroy();
      }
      firstStart.countDown();
    }
  }

  private void supervise() throws IOException, InterruptedException {
    String death;
    do {
      death = life();
      late |= death != null && timeout.hasPassed();
    } while (death != null && !late && mayStartAgain(death));
  }

  /** Starts a sidecar and writes records to it; returns how the sidecar died, or null if no restart is needed. */
  private String life() throws IOException, InterruptedException {
    try {
      // Call this before the start, because a sidecar sends its first counters as soon as it is ready.
      statistics.sidecarStarted();
      Map<String, Map<String, Long>> before = statistics.before();
      ByteArrayOutputStream lines = new ByteArrayOutputStream();
      lines.write(writer.hello(messages.nextSequence(), before, messages.memory()));
      writer.restore(lines);
      SidecarProcess process = launcher.launch(lines.toByteArray());
      ready = true;
      firstStart.countDown();
      if (feed(process) && drained(process)) {
        return null;
      }
      process.end(timeout.millisLeft());
      return "ended (" + process.describeExit() + ")";
    } catch (Launcher.StartFailure unready) {
      // Allow a restart if the cause may be temporary: a sidecar has run before, or the last one was killed.
      if (ready || (unready.wasKilled && !timeout.hasPassed())) {
        return "did not start (" + unready.objections + ")";
      }
      failure = unready.getMessage();
      String consequence = settings.required || timeout.isSet() ? "" : "; the job continues without them";
      LOG.error("[spark-events] no events will be reported{}. {}", consequence, failure);
      return null;
    } catch (IOException | RuntimeException | Error defect) {
      if (!ready) {
        // After a failure of the first start, do not restart: it would fail again, and a thread may be waiting for the
        // result.
        throw defect;
      }
      // A defect, such as a temporary lack of memory, must cost at most one sidecar, not all events of the application.
      LOG.error("[spark-events] a defect in the shim; killing the sidecar and restarting it; report this", defect);
      launcher.process().end(timeout.millisLeft());
      return "was killed after a defect in the shim: " + Failures.describe(defect);
    }
  }

  /** Logs the death and pauses; returns whether another sidecar should be started. */
  private boolean mayStartAgain(String death) throws InterruptedException {
    long pause = restarts.nextPauseMillis(System.nanoTime());
    if (pause < 0) {
      failure = "The sidecar died " + restarts.describe() + "; the last one " + death + ".";
      LOG.error(
          "[spark-events] no more events will be reported; the job continues. {} The log reports the number of lost"
              + " records at the end of the application.",
          failure);
      return false;
    }
    boolean ending = timeout.isSet();
    if (ending) {
      pause = Math.min(pause, Math.min(LONGEST_LAST_PAUSE_MILLIS, timeout.millisLeft()));
    }
    LOG.warn(
        "[spark-events] the sidecar {}; restarting it in {} ms and resending all unacknowledged records", death, pause);
    if (ending) {
      Thread.sleep(pause);
    } else {
      finishing.await(pause, TimeUnit.MILLISECONDS);
    }
    late |= timeout.hasPassed();
    return !late;
  }

  /** Writes the queue's records; returns false if the process has exited, true after the goodbye message. */
  private boolean feed(SidecarProcess process) throws InterruptedException {
    try {
      // The stall timeout begins when the sidecar is ready.
      queue.rewind();
      stallMonitor.watch(process::destroy);
      return write(process);
    } finally {
      stallMonitor.watch(null);
    }
  }

  private boolean write(SidecarProcess process) throws InterruptedException {
    try {
      while (!process.hasEnded()) {
        boolean over = writer.next(process.input, IDLE_MILLIS);
        if (over || !queue.hasPending()) {
          process.input.flush();
        }
        if (over) {
          return true;
        }
      }
    } catch (IOException brokenPipe) {
      // The process has exited or is being destroyed.
    }
    return false;
  }

  /** Waits until the sidecar exits after the goodbye message; returns false if it died with unacknowledged records. */
  private boolean drained(SidecarProcess sidecar) throws InterruptedException {
    late |= !sidecar.awaitExit(timeout.millisLeft());
    return late || queue.size() == 0;
  }
}
