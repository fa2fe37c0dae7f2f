package io.sparkevents.sidecar;

import io.sparkevents.config.Settings;
import io.sparkevents.listener.ApplicationEnd;
import io.sparkevents.listener.ApplicationOutcome;
import io.sparkevents.listener.ApplicationRecords;
import io.sparkevents.listener.BusEvent;
import io.sparkevents.listener.ExitEvidence;
import io.sparkevents.listener.PythonProgram;
import io.sparkevents.listener.RecordSink;
import io.sparkevents.listener.Redaction;
import io.sparkevents.metrics.Statistics;
import io.sparkevents.queue.Deadline;
import io.sparkevents.queue.Threads;
import java.util.List;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Connection of one application to its sidecar.
 *
 * <p>The first caller opens the connection: the plugin, which Spark creates before the listeners, or the listener. If
 * both are configured, the second caller receives no connection, so that each event is reported once.
 */
public final class Connection extends RecordSink {
  private static final Logger LOG = LoggerFactory.getLogger(Connection.class);

  /** Key under which Spark stores the application's id as soon as it is known. */
  private static final String APPLICATION = "spark.app.id";
  /** Interval at which the exit hook inspects the threads for a running stop, in milliseconds. */
  private static final long STOP_POLL_MILLIS = 20;

  static {
    PythonProgram.onEnd(Connection::pythonEnds);
  }

  /** The open connection, or null; a JVM has one SparkContext at a time. */
  private static final AtomicReference<Connection> OPEN = new AtomicReference<>();

  private final SparkConf conf;
  public final Statistics statistics = new Statistics();
  public final Sidecar sidecar;
  /**
   * Held end of the application while its program continues; null if the application has not ended, or if its end was
   * sent.
   */
  private final AtomicReference<ApplicationEnd> provisional = new AtomicReference<>();
  /** Context of the application, kept because Spark forgets a stopped context; null until the first successful look-up. */
  private SparkContext context;
  private final Thread exitHook = new Thread(this::jvmExits, "spark-events-exit");

  private Connection(SparkConf conf, Settings settings, List<Interpreter> candidates) {
    super(settings);
    this.conf = conf;
    PythonProgram.read(conf);
    sidecar = new Sidecar(settings, conf.get("spark.app.name", ""), candidates, queue, barrier, statistics);
    SparkContext running = BusEvent.runningContext();
    if (running != null) {
      // The program adds the listener to its running application, so no event reports the application's start.
      queue.know(new ApplicationRecords(conf, Redaction.of(conf)).application(running));
    }
  }

  /**
   * Opens the connection of an application and starts its sidecar.
   *
   * @param conf the application's configuration: the same object that Spark passes to plugins and listeners
   * @return null if there is nothing to report, or if another connection reports it; also for a copy of the running
   *     application's configuration
   * @throws IllegalStateException if events cannot be reported and spark.events.required is true
   */
  public static synchronized Connection open(SparkConf conf) {
    Connection present = OPEN.get();
    if (present != null && present.conf == conf) {
      return null;
    }
    if (present != null && present.isOfRunningContext()) {
      LOG.warn(
          "spark-events: this application already has a listener; ignoring the second one;"
              + " remove it from spark.extraListeners");
      return null;
    }
    boolean required = false;
    Connection made = null;
    String failure;
    try {
      supersede();
      Settings settings = Settings.read(conf, System.getenv());
      required = settings.required;
      failure = settings.given.problem;
      if (failure != null) {
        LOG.error("spark-events: no events will be reported: {}", failure);
      } else if (settings.sidecarEnabled) {
        made = new Connection(conf, settings, Interpreter.candidates(settings, conf, System.getenv()));
        failure = made.start();
        OPEN.set(made);
      }
    } catch (Throwable defect) {
      if (defect instanceof InterruptedException) {
        Thread.currentThread().interrupt();
      }
      failure = defect.toString();
      LOG.error("spark-events: cannot start; the job continues without events", defect);
      if (made != null) {
        made.abandon();
        made = null;
      }
    }
    if (failure != null && required) {
      if (made != null) {
        made.close();
      }
      throw new IllegalStateException("spark-events cannot start, and spark.events.required is true. " + failure);
    }
    return made;
  }

  /**
   * Closes the open connection, if there is one, because the JVM has a new context.
   *
   * <p>Either the old context could not be created, or Spark dropped the event that reports its end.
   */
  private static void supersede() {
    Connection before = OPEN.getAndSet(null);
    if (before != null) {
      ApplicationEnd end = before.provisional.getAndSet(null);
      before.sidecar.reportDrops();
      if (end != null || before.queue.hasBeenUsed()) {
        before.queue.offer((end == null ? ApplicationEnd.unknown() : end).record(false));
      }
      before.abandon();
    }
  }

  /**
   * Returns whether the running SparkContext belongs to this connection.
   *
   * <p>The method compares application ids, because a listener that the application itself creates receives a copy of
   * the configuration.
   */
  private boolean isOfRunningContext() {
    SparkContext present = presentContext();
    return present != null && !present.isStopped();
  }

  /** Returns whether Spark is stopping or has stopped the context. */
  @Override
  protected boolean isEnding() {
    if (context == null) {
      // The context is not available until its constructor has returned.
      context = presentContext();
    }
    return context != null && context.isStopped();
  }

  /** Returns the active context of this application; null before its constructor has returned. */
  private SparkContext presentContext() {
    SparkContext active = BusEvent.activeContext();
    boolean isOurs = active != null && conf.get(APPLICATION, "").equals(active.conf().get(APPLICATION, null));
    return isOurs ? active : null;
  }

  private String start() throws InterruptedException {
    sidecar.start();
    ExitEvidence.watch();
    Runtime.getRuntime().addShutdownHook(exitHook);
    return settings.required ? sidecar.awaitStarted() : null;
  }

  /**
   * Delivers all records, then closes the connection.
   *
   * <p>A provisional end is held until the program's outcome is known, at most {@code events.shutdown.outcome-timeout}.
   * {@code SparkContext.stop} does not wait for the outcome.
   */
  @Override
  public void end(ApplicationEnd end) {
    // Work whose end was dropped must not be reported as cancelled by the application's end.
    sidecar.reportDrops();
    // Without a sidecar, do not hold the end, so that its loss is counted once.
    boolean mayHold = settings.outcomeTimeoutMillis > 0 && end.isProvisional() && !queue.isClosed();
    if (mayHold) {
      hold(end);
    } else {
      close(end);
    }
  }

  private void hold(ApplicationEnd end) {
    provisional.set(end);
    // The sidecar needs this record in case the driver is killed while the end is held.
    queue.offer(end.record(true));
    Threads.start("outcome", this::awaitOutcome);
  }

  private void awaitOutcome() throws InterruptedException {
    Thread.sleep(settings.outcomeTimeoutMillis);
    ApplicationEnd end = provisional.getAndSet(null);
    if (end != null) {
      close(end);
    }
  }

  /**
   * Delivers a held end when the Python program that drives this JVM exits, because Python does not wait for the JVM.
   */
  private static void pythonEnds(PythonProgram program) {
    Connection connection = OPEN.get();
    boolean mayBeHeld = connection != null && ApplicationOutcome.isDrivenByPython();
    ApplicationEnd end = mayBeHeld ? connection.provisional.getAndSet(null) : null;
    if (end != null) {
      connection.close(end.with(program));
    }
  }

  private void close(ApplicationEnd end) {
    queue.offer(end.record(false));
    close();
  }

  public void close() {
    OPEN.compareAndSet(this, null);
    end();
  }

  /** Closes this connection in a separate thread, without waiting. */
  private void abandon() {
    try {
      Threads.start("abandoned", this::end);
    } catch (Throwable noThread) {
      // Ask the sidecar to exit, without enforcing a deadline. An exception here would stop the SparkContext.
      queue.finish();
    }
  }

  private void end() {
    Threads.untilInterrupted(sidecar::finish);
    try {
      Runtime.getRuntime().removeShutdownHook(exitHook);
    } catch (IllegalStateException alreadyShuttingDown) {
      // When the shutdown hook runs, it finds the queue closed.
    }
  }

  /**
   * Runs as a shutdown hook: sends the held end, or reports the shutdown of the JVM.
   *
   * <p>An application may end without an ApplicationEnd, because Spark drops this event too if a listener queue is
   * full. The sidecar still delivers the records that are in the pipe.
   */
  private void jvmExits() {
    if (closeHeldEnd()) {
      return;
    }
    sidecar.reportDrops();
    queue.offer(ApplicationRecords.jvmShutdown());
    Threads.untilInterrupted(this::awaitStop);
    // While this hook waited, the end may have been held.
    closeHeldEnd();
  }

  /** Sends the held end with the evidence of the JVM's exit; returns false if no end is held. */
  private boolean closeHeldEnd() {
    ApplicationEnd end = provisional.getAndSet(null);
    if (end == null) {
      return false;
    }
    close(end.atExit());
    return true;
  }

  /**
   * Waits, within the shutdown timeout, until no thread is in SparkContext.stop and the records are in the pipe.
   *
   * <p>Spark stops itself in a daemon thread, and the JVM does not wait for daemon threads. Without this wait, the JVM
   * may exit before Spark reports the application's end.
   */
  private void awaitStop() throws InterruptedException {
    Deadline deadline = new Deadline();
    deadline.setAfter(settings.shutdownTimeoutMillis);
    while (provisional.get() == null
        && !queue.isClosed()
        && ApplicationOutcome.isStopping()
        && !deadline.hasPassed()) {
      Thread.sleep(STOP_POLL_MILLIS);
    }
    queue.awaitWritten(deadline.millisLeft());
  }
}
