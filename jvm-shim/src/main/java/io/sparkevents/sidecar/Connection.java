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
import io.sparkevents.queue.Record;
import io.sparkevents.queue.Threads;
import io.sparkevents.queue.Timeout;
import java.util.List;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;

/**
 * Connection of one application to its sidecar, from its first record to its end.
 *
 * <p>If the program may continue after the end of its SparkContext, the connection holds the end until the program's
 * outcome is known. {@link Connections} opens it.
 */
public final class Connection extends RecordSink {
  /** Key under which Spark stores the application's id as soon as it is known. */
  private static final String APPLICATION = "spark.app.id";
  /** Interval at which the exit hook inspects the threads for a running stop, in milliseconds. */
  private static final long STOP_POLL_MILLIS = 20;

  final SparkConf conf;
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

  Connection(SparkConf conf, Settings settings, List<Interpreter> candidates) {
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
   * Returns whether the running SparkContext belongs to this connection.
   *
   * <p>The method compares application ids, because a listener that the application itself creates receives a copy of
   * the configuration.
   */
  boolean isOfRunningContext() {
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

  /** Starts the sidecar; returns the reason if it fails to start, or null. */
  String start() throws InterruptedException {
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
  void pythonEnds(PythonProgram program) {
    ApplicationEnd end = ApplicationOutcome.isDrivenByPython() ? provisional.getAndSet(null) : null;
    if (end != null) {
      close(end.with(program));
    }
  }

  private void close(ApplicationEnd end) {
    Record last = end.record(false);
    queue.offer(last);
    close();
    sidecar.leave(last);
  }

  public void close() {
    Connections.closed(this);
    end();
  }

  /**
   * Closes this connection because the JVM has a new context: either the context of this connection could not be
   * created, or Spark dropped the event that reports its end.
   */
  void supersede() {
    ApplicationEnd end = provisional.getAndSet(null);
    sidecar.reportDrops();
    if (end != null || queue.hasBeenUsed()) {
      queue.offer((end == null ? ApplicationEnd.unknown() : end).record(false));
    }
    abandon();
  }

  /** Closes this connection in a separate thread, without waiting. */
  void abandon() {
    try {
      Threads.start("abandoned", this::end);
    } catch (Throwable noThread) {
      // Ask the sidecar to exit, without enforcing a timeout. An exception here would stop the SparkContext.
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
    Timeout timeout = new Timeout();
    timeout.setAfter(settings.shutdownTimeoutMillis);
    while (provisional.get() == null
        && !queue.isClosed()
        && ApplicationOutcome.isStopping()
        && !timeout.hasPassed()) {
      Thread.sleep(STOP_POLL_MILLIS);
    }
    queue.awaitWritten(timeout.millisLeft());
  }
}
