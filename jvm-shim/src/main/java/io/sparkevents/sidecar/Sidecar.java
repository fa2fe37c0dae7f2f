package io.sparkevents.sidecar;

import io.sparkevents.config.Settings;
import io.sparkevents.listener.Failures;
import io.sparkevents.metrics.Statistics;
import io.sparkevents.queue.Deadline;
import io.sparkevents.queue.DropCounters;
import io.sparkevents.queue.HandoffQueue;
import io.sparkevents.queue.SyncBarrier;
import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Starts the sidecar, writes records to it, restarts it when it dies, and ends it.
 *
 * <p>One daemon thread, the supervisor, does all of this. A failure here never reaches Spark: in the worst case the
 * supervisor closes the queue, and the driver's log reports once that records are dropped.
 */
public final class Sidecar {
  private static final Logger LOG = LoggerFactory.getLogger(Sidecar.class);
  /** Time for the supervisor thread to end after its blocking process was killed. */
  private static final long KILL_MILLIS = 50;
  private static final long IDLE_MILLIS = 1_000;
  /** Longest pause between two sidecars while the application ends. */
  private static final long LONGEST_LAST_PAUSE_MILLIS = 1_000;

  private final Settings settings;
  private final HandoffQueue queue;
  private final SyncBarrier gate;
  private final Statistics statistics;
  private final Thread supervisor = new Thread(this::run, "spark-events-sidecar");
  private final CountDownLatch firstStart = new CountDownLatch(1);
  private final CountDownLatch finishing = new CountDownLatch(1);
  private final Deadline deadline = new Deadline();
  private final EventLog events = new EventLog();
  private final Restarts restarts;
  private final Launcher launcher;
  private final RecordWriter feed;
  private final StallMonitor stallMonitor;
  private final UnreportedLosses losses;

  private volatile String failure;
  private volatile boolean ready;
  private volatile boolean late;

  public Sidecar(
      Settings settings,
      String application,
      List<Interpreter> candidates,
      HandoffQueue queue,
      SyncBarrier gate,
      Statistics statistics) {
    this.settings = settings;
    this.queue = queue;
    this.gate = gate;
    this.statistics = statistics;
    restarts = new Restarts(settings.mostRestarts, settings.restartsWindowMillis);
    SidecarMessages answers = new SidecarMessages(queue, gate, statistics, events);
    launcher =
        new Launcher(
            settings, application, candidates, answers, statistics, restarts, deadline, queue::wakeWriter);
    feed = new RecordWriter(queue, deadline);
    stallMonitor = new StallMonitor(queue, settings.stallTimeoutMillis);
    losses = new UnreportedLosses(settings.stateFolder, application);
  }

  public void start() {
    supervisor.setDaemon(true);
    supervisor.start();
    stallMonitor.start();
  }

  public int restarts() {
    return restarts.count();
  }

  /** Waits until the sidecar is ready; returns why it is not, or null. */
  public String awaitStarted() throws InterruptedException {
    return firstStart.await(launcher.patience(), TimeUnit.MILLISECONDS)
        ? failure
        : "The sidecar was not ready in time (spark.events.sidecar.start-timeout).";
  }

  /** Drains the queue within the shutdown timeout, then ends the process. Call it after the last record. */
  public void finish() throws InterruptedException {
    long patience = Math.max(0, settings.shutdownTimeoutMillis - gate.spentAtTheEndMillis());
    deadline.setAfter(patience);
    queue.finish();
    finishing.countDown();
    stallMonitor.stop();
    supervisor.join(Math.max(1, patience));
    if (supervisor.isAlive()) {
      // The supervisor may be blocked in the pipe of a process that does not read.
      late = true;
      SidecarProcess last = launcher.process();
      if (last != null) {
        last.destroy();
      }
      supervisor.join(KILL_MILLIS);
    }
    long unlogged = events.close(deadline.millisLeft());
    if (unlogged > 0) {
      LOG.warn(
          "spark-events: {} events may be missing from the driver's log because its appender was too slow;"
              + " check the appender of the logger {}",
          unlogged,
          EventLog.LOGGER);
    }
    logLosses();
  }

  private void countEarlierLoss(String kind, Object number) {
    if (number instanceof Number) {
      queue.countDropped(DropCounters.EARLIER_RUN, kind, ((Number) number).longValue());
    }
  }

  /**
   * Saves the losses that no sidecar of this run can report: now, in case the driver is killed, and again at the end.
   */
  private void saveLosses() {
    losses.save(queue.unreported());
    try {
      finishing.await();
      losses.save(queue.unreported());
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
    }
  }

  private void logLosses() {
    queue.close();
    Map<String, Long> unreported = queue.unreported();
    if (!ready || (!late && unreported.isEmpty())) {
      return;
    }
    LOG.warn(
        "spark-events: {}. Lost records that no event reports (unconfirmed: received by the sidecar, not acknowledged): {}",
        late
            ? "sidecar did not end within " + settings.shutdownTimeoutMillis + " ms (spark.events.shutdown.timeout)"
            : "the application has ended",
        unreported.isEmpty() ? "none" : unreported);
  }

  private void run() {
    try {
      supervise();
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
    } catch (Throwable defect) {
      failure = "a defect in the shim: " + Failures.describe(defect);
      LOG.error("spark-events: no more events will be reported, the job continues: {}; report this", failure, defect);
    } finally {
      queue.close();
      SidecarProcess last = launcher.process();
      if (last != null) {
        // Kill first: closing the pipe writes its buffer, and a stopped process does not read.
        last.destroy();
        last.closeInput();
      }
      firstStart.countDown();
      if (ready && failure != null) {
        saveLosses();
      }
    }
  }

  private void supervise() throws IOException, InterruptedException {
    String death;
    do {
      death = life();
    } while (death != null && mayStartAgain(death));
  }

  /** Starts a sidecar and writes records to it; returns how it died, or null if no restart is needed. */
  private String life() throws IOException, InterruptedException {
    try {
      // Called before the start, because a sidecar sends its first counters as soon as it is ready.
      statistics.sidecarStarted();
      SidecarProcess process = launcher.launch(feed.past());
      return process == null ? stillbirth() : lifetime(process);
    } catch (IOException | RuntimeException | Error defect) {
      if (!ready) {
        // The first start failed: a restart would fail the same way, and a thread may wait for the result.
        throw defect;
      }
      // A defect such as a short lack of memory costs one sidecar, not all events of the application.
      LOG.error("spark-events: a defect in the shim; killing the sidecar and restarting it; report this", defect);
      SidecarProcess last = launcher.process();
      if (last != null) {
        last.end(deadline.millisLeft());
      }
      return unlessLate("was killed after a defect in the shim: " + Failures.describe(defect));
    }
  }

  /** Writes records to a sidecar until it dies; returns how it died, or null if no restart is needed. */
  private String lifetime(SidecarProcess process) throws InterruptedException {
    if (!ready) {
      ready = true;
      losses.take().forEach((kind, number) -> countEarlierLoss(String.valueOf(kind), number));
    }
    firstStart.countDown();
    if (feed(process) && drained(process)) {
      return null;
    }
    process.end(deadline.millisLeft());
    return unlessLate("ended (" + process.describeExit() + ")");
  }

  /** Returns the death, or null if the shutdown deadline has passed and no restart is needed. */
  private String unlessLate(String death) {
    late |= deadline.hasPassed();
    return late ? null : death;
  }

  /** Handles a sidecar that did not become ready; returns why, or null if a restart would not help. */
  private String stillbirth() {
    boolean over = deadline.hasPassed();
    // An interpreter that ran a sidecar before can run one again: the cause may be temporary.
    if (!ready && (over || !launcher.wasKilled())) {
      failure = launcher.failure();
      String consequence = settings.required || deadline.isSet() ? "" : ", the job continues without them";
      LOG.error("spark-events: no events will be reported{}. {}", consequence, failure);
      return null;
    }
    return unlessLate("did not start (" + launcher.objections() + ")");
  }

  /** Logs the death and pauses; returns whether to start another sidecar. */
  private boolean mayStartAgain(String death) throws InterruptedException {
    boolean ending = finishing.getCount() == 0;
    long pause = restarts.nextPauseMillis(System.nanoTime());
    if (pause < 0) {
      failure = "The sidecar died " + restarts.describe() + "; the last one " + death + ".";
      LOG.error(
          "spark-events: no more events will be reported, the job continues. {} The next run of this application"
              + " reports the number of lost records.",
          failure);
      return false;
    }
    if (ending) {
      pause = Math.min(pause, Math.min(LONGEST_LAST_PAUSE_MILLIS, deadline.millisLeft()));
    }
    LOG.warn(
        "spark-events: the sidecar {}; restarting it in {} ms and resending all unacknowledged records",
        death,
        pause);
    if (ending) {
      Thread.sleep(pause);
    } else {
      finishing.await(pause, TimeUnit.MILLISECONDS);
    }
    return unlessLate(death) != null;
  }

  /** Writes into the pipe until the process ends (false) or the goodbye is written (true). */
  private boolean feed(SidecarProcess process) throws InterruptedException {
    try {
      feed.begin(process::write);
      stallMonitor.watch(process::destroy);
      while (!process.hasEnded()) {
        boolean over = feed.next(process::write, IDLE_MILLIS);
        if (over || !queue.hasPending()) {
          process.flush();
        }
        if (over) {
          return true;
        }
      }
    } catch (IOException brokenPipe) {
      return false;
    } finally {
      stallMonitor.watch(null);
    }
    return false;
  }

  /** Waits until the sidecar exits after the goodbye; false if it died before it acknowledged all records. */
  private boolean drained(SidecarProcess sidecar) throws InterruptedException {
    if (!sidecar.awaitExit(deadline.millisLeft())) {
      late = true;
      return true;
    }
    return queue.isAcknowledgedEntirely();
  }
}
