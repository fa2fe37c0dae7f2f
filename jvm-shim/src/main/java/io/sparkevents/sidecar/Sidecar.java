package io.sparkevents.sidecar;

import io.sparkevents.config.Settings;
import io.sparkevents.listener.Failures;
import io.sparkevents.metrics.Statistics;
import io.sparkevents.queue.Deadline;
import io.sparkevents.queue.RecordQueue;
import io.sparkevents.queue.SyncBarrier;
import io.sparkevents.queue.Threads;
import io.sparkevents.wire.DriverLog;
import io.sparkevents.wire.MessageReader;
import io.sparkevents.wire.RecordWriter;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Starts the sidecar, restarts it if it dies, and shuts it down; a {@link RecordWriter} writes the records.
 *
 * <p>One daemon thread, the supervisor, does all this work. A failure in this class never reaches Spark. In the worst
 * case, the supervisor closes the queue, and the driver's log reports once that records are dropped.
 */
public final class Sidecar {
  /** Longest pause before a restart of the sidecar while the application is ending. */
  private static final long LONGEST_LAST_PAUSE_MILLIS = 1_000;
  private static final Logger LOG = LoggerFactory.getLogger(Sidecar.class);
  /** Longest wait for a record before the writer looks whether the process is still alive. */
  private static final long IDLE_MILLIS = 1_000;
  /** Time limit for the supervisor thread to end once the process that blocks it has been killed. */
  private static final long KILL_MILLIS = 50;

  private final Settings settings;
  private final String application;
  private final RecordQueue queue;
  private final SyncBarrier barrier;
  private final Statistics statistics;
  private final CountDownLatch firstStart = new CountDownLatch(1);
  private final CountDownLatch finishing = new CountDownLatch(1);
  private final Deadline deadline = new Deadline();
  private final DriverLog events = new DriverLog();
  private final MessageReader messages;
  private final Restarts restarts;
  private final Launcher launcher;
  private final RecordWriter writer;
  private final StallMonitor stallMonitor;
  /** The supervisor thread; not started if the system could not create a thread. */
  private final Thread supervisor = Threads.daemon("sidecar", this::run);

  private volatile String failure;
  private volatile boolean ready;
  private volatile boolean late;

  public Sidecar(
      Settings settings, String application, List<Interpreter> candidates, RecordQueue queue, SyncBarrier barrier,
      Statistics statistics) {
    this.settings = settings;
    this.application = application;
    this.queue = queue;
    this.barrier = barrier;
    this.statistics = statistics;
    restarts = new Restarts(settings.mostRestarts, settings.restartsWindowMillis);
    messages = new MessageReader(queue, barrier, statistics, events);
    launcher = new Launcher(settings, candidates, deadline, messages::receive, queue.writer::wake);
    writer = new RecordWriter(queue, deadline);
    stallMonitor = new StallMonitor(queue, settings.stallTimeoutMillis);
  }

  public void start() {
    supervisor.start();
    stallMonitor.start();
  }

  /** Enqueues reports of all drops so far. */
  void reportDrops() {
    writer.reportDrops();
  }

  public int restarts() {
    return restarts.count();
  }

  /** Waits until the sidecar is ready; returns the reason if it fails to start, or null. */
  public String awaitStarted() throws InterruptedException {
    return firstStart.await(launcher.patience(), TimeUnit.MILLISECONDS)
        ? failure
        : "The sidecar was not ready in time (spark.events.sidecar.start-timeout).";
  }

  /** Drains the queue within the shutdown timeout, then stops the process. Call this method after the last record. */
  public void finish() throws InterruptedException {
    long patience = Math.max(0, settings.shutdownTimeoutMillis - barrier.spentAtTheEndMillis());
    deadline.setAfter(patience);
    queue.finish();
    finishing.countDown();
    stallMonitor.stop();
    supervisor.join(Math.max(1, patience));
    SidecarProcess last = launcher.process();
    if (supervisor.isAlive() && last != null) {
      // The supervisor may be blocked, because the process does not read its pipe.
      last.destroy();
      late = true;
      supervisor.join(KILL_MILLIS);
    }
    events.close(deadline.millisLeft());
    logLosses();
  }

  private void logLosses() {
    queue.close();
    Map<String, Long> unreported = queue.drops.unreported();
    if (ready && (late || !unreported.isEmpty())) {
      LOG.warn(
          "spark-events: {}. Lost records that no event reports (unconfirmed: received by the sidecar, not acknowledged): {}",
          late
              ? "sidecar did not end within " + settings.shutdownTimeoutMillis + " ms (spark.events.shutdown.timeout)"
              : "the application has ended",
          unreported.isEmpty() ? "none" : unreported);
    }
  }

  private void run() {
    try {
      supervise();
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
    } catch (Throwable defect) {
      failure = "a defect in the shim: " + Failures.describe(defect);
      LOG.error("spark-events: no more events will be reported; the job continues: {}; report this", failure, defect);
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
      late |= death != null && deadline.hasPassed();
    } while (death != null && !late && mayStartAgain(death));
  }

  /** Starts a sidecar and writes records to it; returns how the sidecar died, or null if no restart is needed. */
  private String life() throws IOException, InterruptedException {
    try {
      // Call this before the start, because a sidecar sends its first counters as soon as it is ready.
      statistics.sidecarStarted();
      Map<String, Map<String, Long>> before = statistics.before();
      ByteArrayOutputStream lines = new ByteArrayOutputStream();
      lines.write(writer.hello(settings, application, messages.nextSequence(), before));
      writer.restore(lines);
      SidecarProcess process = launcher.launch(lines.toByteArray());
      ready = true;
      firstStart.countDown();
      if (feed(process) && drained(process)) {
        return null;
      }
      process.end(deadline.millisLeft());
      return "ended (" + process.describeExit() + ")";
    } catch (Launcher.StartFailure unready) {
      // Allow a restart if the cause may be temporary: a sidecar has run before, or the last one was killed.
      if (ready || (unready.wasKilled && !deadline.hasPassed())) {
        return "did not start (" + unready.objections + ")";
      }
      failure = unready.getMessage();
      String consequence = settings.required || deadline.isSet() ? "" : "; the job continues without them";
      LOG.error("spark-events: no events will be reported{}. {}", consequence, failure);
      return null;
    } catch (IOException | RuntimeException | Error defect) {
      if (!ready) {
        // After a failure of the first start, do not restart: it would fail again, and a thread may be waiting for the
        // result.
        throw defect;
      }
      // A defect, such as a temporary lack of memory, must cost at most one sidecar, not all events of the application.
      LOG.error("spark-events: a defect in the shim; killing the sidecar and restarting it; report this", defect);
      launcher.process().end(deadline.millisLeft());
      return "was killed after a defect in the shim: " + Failures.describe(defect);
    }
  }

  /** Logs the death and pauses; returns whether another sidecar should be started. */
  private boolean mayStartAgain(String death) throws InterruptedException {
    long pause = restarts.nextPauseMillis(System.nanoTime());
    if (pause < 0) {
      failure = "The sidecar died " + restarts.describe() + "; the last one " + death + ".";
      LOG.error(
          "spark-events: no more events will be reported; the job continues. {} The log reports the number of lost"
              + " records at the end of the application.",
          failure);
      return false;
    }
    boolean ending = deadline.isSet();
    if (ending) {
      pause = Math.min(pause, Math.min(LONGEST_LAST_PAUSE_MILLIS, deadline.millisLeft()));
    }
    LOG.warn(
        "spark-events: the sidecar {}; restarting it in {} ms and resending all unacknowledged records", death, pause);
    if (ending) {
      Thread.sleep(pause);
    } else {
      finishing.await(pause, TimeUnit.MILLISECONDS);
    }
    late |= deadline.hasPassed();
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
    late |= !sidecar.awaitExit(deadline.millisLeft());
    return late || queue.size() == 0;
  }
}
