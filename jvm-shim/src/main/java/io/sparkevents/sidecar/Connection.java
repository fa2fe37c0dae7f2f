package io.sparkevents.sidecar;

import io.sparkevents.config.Settings;
import io.sparkevents.listener.ApplicationEnd;
import io.sparkevents.listener.ApplicationOutcome;
import io.sparkevents.listener.ExitCode;
import io.sparkevents.listener.LoggedExit;
import io.sparkevents.listener.MainThread;
import io.sparkevents.listener.PythonProgram;
import io.sparkevents.listener.RecordSink;
import io.sparkevents.listener.Records;
import io.sparkevents.metrics.Statistics;
import io.sparkevents.queue.HandoffQueue;
import io.sparkevents.queue.Record;
import io.sparkevents.queue.SyncBarrier;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext$;
import org.apache.spark.SparkContext;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Option;

/**
 * One application's way to its sidecar, opened by the first that asks: the plugin, which Spark makes
 * before the listeners, or the listener. Where both are configured, the second one gets nothing, and so
 * nothing is told twice.
 */
public final class Connection implements RecordSink {
  private static final Logger LOG = LoggerFactory.getLogger(Connection.class);

  /** Where Spark puts the application's number when it has one. */
  private static final String APPLICATION = "spark.app.id";

  /** The one that is open, and for whom; a JVM has one SparkContext at a time. */
  private static Connection open;

  private final SparkConf conf;
  private final Settings settings;
  public final HandoffQueue queue;
  public final Statistics statistics = new Statistics();
  public final Sidecar sidecar;
  private final SyncBarrier gate;
  /** Found when it is asked for first. */
  private SparkContext context;
  private final long outcomeTimeoutMillis;
  private final CountDownLatch settled = new CountDownLatch(1);
  /** The end of an application whose program goes on; null: it has not ended, or its outcome is told. */
  private ApplicationEnd provisional;
  private volatile boolean over;
  private final Thread exitHook = new Thread(this::jvmExits, "spark-events-exit");

  private Connection(SparkConf conf, Settings settings, List<Interpreter> candidates) {
    this.conf = conf;
    this.settings = settings;
    outcomeTimeoutMillis = settings.outcomeTimeoutMillis();
    PythonProgram.read(conf);
    queue = new HandoffQueue(settings.queueSize(), settings.synchronous());
    gate = SyncBarrier.of(settings, queue, this::isEnding);
    String application = conf.get("spark.app.name", "");
    sidecar = new Sidecar(settings, application, candidates, queue, gate, statistics);
  }

  /**
   * @param conf the application's own, the very object that Spark hands to plugins and listeners
   * @return null where nothing is to be reported, or another one reports it; also for a copy of the configuration of the
   *     application that runs
   * @throws IllegalStateException when there can be no events, and spark.events.required is true
   */
  public static synchronized Connection open(SparkConf conf) {
    if (open != null && open.conf == conf) {
      return null;
    }
    if (open != null && open.isOfRunningContext()) {
      LOG.warn("spark-events: this application has a listener already, another one is told nothing");
      return null;
    }
    boolean required = false;
    Connection made = null;
    String failure;
    try {
      Connection before = open;
      open = null;
      if (before != null) {
        before.supersede();
      }
      Settings settings = Settings.read(conf, System.getenv());
      required = settings.required();
      failure = settings.problem();
      if (failure != null) {
        LOG.error("spark-events: no events will be reported, {}", failure);
      } else if (settings.sidecarEnabled()) {
        made = new Connection(conf, settings, Interpreter.candidates(settings, conf, System.getenv()));
        failure = made.start(required);
        open = made;
      }
    } catch (Throwable defect) {
      if (defect instanceof InterruptedException) {
        Thread.currentThread().interrupt();
      }
      failure = defect.toString();
      LOG.error("spark-events: cannot start, the job goes on without events", defect);
      if (made != null) {
        made.abandon();
        made = null;
      }
    }
    if (failure != null && required) {
      if (made != null) {
        made.close();
      }
      throw new IllegalStateException(
          "spark-events cannot start, and spark.events.required is true. " + failure);
    }
    return made;
  }

  /**
   * Whether the SparkContext that runs is the one that this is open for. Told by its number, for a listener that the
   * application makes by itself is given a copy of the configuration.
   */
  private boolean isOfRunningContext() {
    SparkContext present = presentContext();
    return present != null && !present.isStopped();
  }

  /** Whether Spark is stopping the context; asked on the listener's thread, for records that a reporter may wait for. */
  private boolean isEnding() {
    if (context == null) {
      // Not there yet while its constructor runs.
      context = presentContext();
    }
    return context != null && context.isStopped();
  }

  /** The context of this application, where Spark has made it and says so; else null. */
  private SparkContext presentContext() {
    try {
      Option<SparkContext> active = SparkContext$.MODULE$.getActive();
      boolean isOurs =
          active.isDefined() && conf.get(APPLICATION, "").equals(active.get().conf().get(APPLICATION, null));
      return isOurs ? active.get() : null;
    } catch (RuntimeException | LinkageError notThisSpark) {
      LOG.debug("spark-events: Spark does not tell which context runs", notThisSpark);
      return null;
    }
  }

  private String start(boolean required) throws InterruptedException {
    sidecar.start();
    MainThread.watch();
    ExitCode.watch();
    LoggedExit.watch();
    Runtime.getRuntime().addShutdownHook(exitHook);
    return required ? sidecar.awaitStarted() : null;
  }

  @Override
  public boolean takesMicroBatches() {
    return settings.reportsMicroBatches();
  }

  @Override
  public void hand(Record record) {
    // Behind the application's end Spark reports what it ends itself.
    if (!over) {
      gate.pass(record);
    }
  }

  /**
   * Delivers everything. A provisional end is held until the program's outcome is known, at most {@code
   * events.shutdown.outcome-timeout}; meanwhile {@code SparkContext.stop} does not wait.
   */
  @Override
  public void end(ApplicationEnd end) {
    over = true;
    // Without a sidecar there is nothing to hold; its loss is counted once.
    boolean mayHold = outcomeTimeoutMillis > 0 && end.isProvisional() && !queue.isClosed();
    if (!mayHold || !hold(end)) {
      close(end);
    }
  }

  private boolean hold(ApplicationEnd end) {
    synchronized (this) {
      provisional = end;
    }
    try {
      Thread clock = new Thread(this::awaitOutcome, "spark-events-outcome");
      clock.setDaemon(true);
      clock.start();
    } catch (Throwable noThread) {
      return takeProvisional() == null;
    }
    // For a driver that is killed meanwhile.
    queue.offer(end.record(true));
    return true;
  }

  private void awaitOutcome() {
    try {
      if (!settled.await(outcomeTimeoutMillis, TimeUnit.MILLISECONDS)) {
        ApplicationEnd end = takeProvisional();
        if (end != null) {
          close(end);
        }
      }
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
    }
  }

  private synchronized ApplicationEnd takeProvisional() {
    ApplicationEnd end = provisional;
    provisional = null;
    settled.countDown();
    return end;
  }

  /** A Python program that drives this JVM exits, and does not wait for the JVM. */
  public static void pythonEnds(PythonProgram program) {
    Connection connection;
    synchronized (Connection.class) {
      connection = open;
    }
    if (connection != null && ApplicationOutcome.isDrivenByPython()) {
      ApplicationEnd end = connection.takeProvisional();
      if (end != null) {
        connection.close(end.with(program));
      }
    }
  }

  private void close(ApplicationEnd end) {
    queue.offer(end.record(false));
    close();
  }

  public void close() {
    forget(this);
    end();
  }

  /**
   * There is another context, so this one is over: it could not be made, or Spark has dropped what would have told its
   * end.
   */
  private void supersede() {
    ApplicationEnd end = takeProvisional();
    if (end != null) {
      queue.offer(end.record(false));
    } else if (queue.hasBeenUsed()) {
      queue.offer(ApplicationEnd.unknown().record(false));
    }
    abandon();
  }

  /** Ends it, and nobody waits for that. */
  private void abandon() {
    try {
      Thread thread = new Thread(this::end, "spark-events-abandoned");
      thread.setDaemon(true);
      thread.start();
    } catch (Throwable noThread) {
      // Nobody sees to it that the sidecar ends in time, but it is told to end.
      queue.finish();
    }
  }

  private void end() {
    try {
      sidecar.finish();
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
    }
    try {
      Runtime.getRuntime().removeShutdownHook(exitHook);
    } catch (IllegalStateException alreadyShuttingDown) {
      // The hook finds the queue closed.
    }
  }

  private static synchronized void forget(Connection closed) {
    if (open == closed) {
      open = null;
    }
  }

  /**
   * The JVM goes down, and perhaps nobody has ended the application or ever will: Spark drops its
   * ApplicationEnd, too, where a listener queue is full. What is in the pipe, the sidecar still delivers.
   */
  private void jvmExits() {
    ApplicationEnd end = takeProvisional();
    if (end != null) {
      close(end.atExit());
      return;
    }
    queue.offer(Records.jvmShutdown());
    try {
      queue.awaitWritten(settings.shutdownTimeoutMillis());
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
    }
  }
}
