package io.sparkevents.sidecar;

import io.sparkevents.config.Settings;
import io.sparkevents.metrics.Statistics;
import io.sparkevents.queue.Record;
import io.sparkevents.queue.RecordQueue;
import io.sparkevents.queue.SyncBarrier;
import io.sparkevents.queue.Threads;
import io.sparkevents.queue.Timeout;
import io.sparkevents.wire.DriverLog;
import io.sparkevents.wire.MessageReader;
import io.sparkevents.wire.RecordWriter;
import io.sparkevents.wire.RunMark;
import java.util.List;
import java.util.Map;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The sidecar of one application, from its start to its end; one daemon thread, the {@link Supervisor}, runs it. */
public final class Sidecar {
  private static final Logger LOG = LoggerFactory.getLogger(Sidecar.class);
  /** Time limit for the supervisor thread to end once the process that blocks it has been killed. */
  private static final long KILL_MILLIS = 50;

  private final Settings settings;
  private final RecordQueue queue;
  private final SyncBarrier barrier;
  private final Timeout timeout = new Timeout();
  private final DriverLog events = new DriverLog();
  private final Launcher launcher;
  private final RecordWriter writer;
  private final StallMonitor stallMonitor;
  private final Supervisor supervisor;
  private final RunMark mark;
  /** Not started if the system could not create a thread. */
  private final Thread thread;

  public Sidecar(
      Settings settings, String application, List<Interpreter> candidates, RecordQueue queue, SyncBarrier barrier,
      Statistics statistics) {
    this.settings = settings;
    this.queue = queue;
    this.barrier = barrier;
    MessageReader messages = new MessageReader(queue, barrier, statistics, events);
    mark = messages.mark;
    launcher = new Launcher(settings, candidates, timeout, messages::receive, queue.writer::wake);
    writer = new RecordWriter(settings, application, queue, timeout);
    stallMonitor = new StallMonitor(queue, settings.stallTimeoutMillis);
    supervisor = new Supervisor(settings, queue, statistics, timeout, messages, launcher, writer, stallMonitor);
    thread = Threads.daemon("sidecar", supervisor);
  }

  public void start() {
    thread.start();
    stallMonitor.start();
  }

  /** Enqueues reports of all drops so far. */
  void reportDrops() {
    writer.reportDrops();
  }

  public int restarts() {
    return supervisor.restarts();
  }

  /** Waits until the sidecar is ready; returns the reason if it fails to start, or null. */
  public String awaitStarted() throws InterruptedException {
    return supervisor.awaitStarted();
  }

  /** Drains the queue within the shutdown timeout, then stops the process. Call this method after the last record. */
  public void finish() throws InterruptedException {
    long patience = Math.max(0, settings.shutdownTimeoutMillis - barrier.spentAtTheEndMillis());
    timeout.setAfter(patience);
    queue.finish();
    supervisor.finish();
    stallMonitor.stop();
    thread.join(Math.max(1, patience));
    SidecarProcess last = launcher.process();
    if (thread.isAlive() && last != null) {
      // The supervisor may be blocked, because the process does not read its pipe.
      last.destroy();
      supervisor.setLate();
      thread.join(KILL_MILLIS);
    }
    events.close(timeout.millisLeft());
    logLosses();
  }

  /** Stores the end for the next run, if no sidecar has received it. Call this method after {@link #finish}. */
  void leave(Record end) {
    mark.leave(end);
  }

  private void logLosses() {
    queue.close();
    Map<String, Long> unreported = queue.drops.unreported();
    boolean late = supervisor.isLate();
    if (supervisor.wasReady() && (late || !unreported.isEmpty())) {
      LOG.warn(
          "[spark-events] {}. Lost records that no event reports (unconfirmed: received by the sidecar, not acknowledged): {}",
          late
              ? "sidecar did not end within " + settings.shutdownTimeoutMillis + " ms (spark.events.shutdown.timeout)"
              : "the application has ended",
          unreported.isEmpty() ? "none" : unreported);
    }
  }
}
