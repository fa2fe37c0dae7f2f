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
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Starts the sidecar, feeds it from the queue, starts it again when it dies, and ends it.
 *
 * <p>All of it happens on one daemon thread of its own. Nothing that goes wrong here reaches Spark:
 * the worst is that the queue is closed and records are dropped, which the driver's log says once.
 */
public final class Sidecar {
  private static final Logger LOG = LoggerFactory.getLogger(Sidecar.class);
  /** A process that was killed is gone a moment later, and so is the thread that waited for it. */
  private static final long KILL_MILLIS = 50;
  private static final long IDLE_MILLIS = 1_000;
  /** Between two sidecars at the application's end, for which there is little time. */
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
    restarts = new Restarts(settings.mostRestarts(), settings.restartsWindowMillis());
    SidecarMessages answers = new SidecarMessages(queue, gate, statistics, events);
    launcher =
        new Launcher(
            settings, application, candidates, answers, statistics, restarts, deadline, queue::wakeWriter);
    feed = new RecordWriter(queue, settings.queueSize(), deadline);
    stallMonitor = new StallMonitor(queue, settings.stallTimeoutMillis());
    losses = new UnreportedLosses(settings.stateFolder(), application);
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
    return firstStart.await(launcher.patience(), TimeUnit.MILLISECONDS) ? failure : "it is not ready in time";
  }

  /** Everything has been offered: drains within the shutdown timeout, then ends the process. */
  public void finish() throws InterruptedException {
    long patience = Math.max(0, settings.shutdownTimeoutMillis() - gate.spentAtTheEndMillis());
    deadline.setAfter(patience);
    queue.finish();
    finishing.countDown();
    stallMonitor.stop();
    supervisor.join(Math.max(1, patience));
    if (supervisor.isAlive()) {
      // It may be stuck in the pipe of a process that does not read.
      late = true;
      SidecarProcess last = launcher.process();
      if (last != null) {
        last.destroy();
      }
      supervisor.join(KILL_MILLIS);
    }
    long unlogged = events.close(deadline.millisLeft());
    if (unlogged > 0) {
      LOG.warn("spark-events: {} events for the driver's own log may not be in it, it was too slow", unlogged);
    }
    sayLosses();
  }

  private void countEarlierLoss(String kind, Object number) {
    if (number instanceof Number) {
      queue.countDropped(DropCounters.EARLIER_RUN, kind, ((Number) number).longValue());
    }
  }

  /** Keeps for the next run what no sidecar of this run can report: at once, for a driver that is killed, and at the end. */
  private void saveLosses() {
    losses.save(queue.unreported());
    try {
      finishing.await();
      losses.save(queue.unreported());
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
    }
  }

  private void sayLosses() {
    queue.close();
    String untold = queue.untoldDrops();
    long unconfirmed = queue.unconfirmed();
    if (!ready || (!late && untold.isEmpty() && unconfirmed == 0)) {
      return;
    }
    LOG.warn(
        "spark-events: {}. Records that are in no event: {}; with the sidecar, which did not say what became"
            + " of them: {}",
        late
            ? "the sidecar did not end within events.shutdown.timeout (" + settings.shutdownTimeoutMillis() + " ms)"
            : "the application has ended",
        untold.isEmpty() ? "none" : untold,
        unconfirmed);
  }

  private void run() {
    try {
      supervise();
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
    } catch (Throwable defect) {
      failure = "a defect in the shim: " + Failures.describe(defect);
      LOG.error("spark-events: no more events from this application, {}", failure, defect);
    } finally {
      queue.close();
      SidecarProcess last = launcher.process();
      if (last != null) {
        // Killed first: to close the pipe is to write what is left into it, and a stopped process does not read.
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

  /** Starts a sidecar and feeds it; returns how it died, or null: there need not be another one. */
  private String life() throws IOException, InterruptedException {
    try {
      // Before there is one: its first numbers may come as soon as it is ready.
      statistics.sidecarStarted();
      SidecarProcess process = launcher.launch(feed.past());
      return process == null ? stillbirth() : lifetime(process);
    } catch (IOException | RuntimeException | Error defect) {
      if (!ready) {
        // It would be the same with the next one, and somebody may be waiting to know.
        throw defect;
      }
      // Memory that is short for a moment, say: one sidecar's life, and not the events of the whole application.
      LOG.error("spark-events: a defect in the shim, the sidecar is ended", defect);
      SidecarProcess last = launcher.process();
      if (last != null) {
        last.end(deadline.millisLeft());
      }
      return unlessLate("was ended after a defect in the shim: " + Failures.describe(defect));
    }
  }

  /** Feeds a sidecar as long as it lives; returns how it died, or null: there need not be another one. */
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

  /** The death, or null where the time for the end is over, and there need not be another one. */
  private String unlessLate(String death) {
    late |= deadline.hasPassed();
    return late ? null : death;
  }

  /** A sidecar has not become ready; returns why, or null: another one would not either. */
  private String stillbirth() {
    boolean over = deadline.hasPassed();
    // An interpreter that has run one before can run another: what was in the way may pass, as a death may.
    if (!ready && (over || !launcher.wasKilled())) {
      failure = launcher.failure();
      String consequence = settings.required() || deadline.isSet() ? "" : ", the job goes on without them";
      LOG.error("spark-events: no events will be reported{}. {}", consequence, failure);
      return null;
    }
    return unlessLate("did not start (" + launcher.objections() + ")");
  }

  /** Pauses, if there may be another sidecar; says what has become of the last one. */
  private boolean mayStartAgain(String death) throws InterruptedException {
    boolean ending = finishing.getCount() == 0;
    long pause = restarts.nextPauseMillis(System.nanoTime());
    if (pause < 0) {
      failure = "The sidecar has died " + restarts.describe() + "; the last one " + death + ".";
      LOG.error(
          "spark-events: no more events will be reported, the job goes on. {} The next run of this application reports"
              + " how many records were lost.",
          failure);
      return false;
    }
    if (ending) {
      pause = Math.min(pause, Math.min(LONGEST_LAST_PAUSE_MILLIS, deadline.millisLeft()));
    }
    LOG.warn(
        "spark-events: the sidecar {}, it is started again in {} ms and is sent again what it had not acknowledged",
        death,
        pause);
    if (ending) {
      Thread.sleep(pause);
    } else {
      finishing.await(pause, TimeUnit.MILLISECONDS);
    }
    return unlessLate(death) != null;
  }

  /** Writes into the pipe until the process ends (false) or all is said (true). */
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

  /** After the goodbye the sidecar ends by itself; one that died before it had done its work did not. */
  private boolean drained(SidecarProcess sidecar) throws InterruptedException {
    if (!sidecar.awaitExit(deadline.millisLeft())) {
      late = true;
      return true;
    }
    return queue.isAcknowledgedEntirely();
  }
}
