package io.sparkevents.sidecar;

import io.sparkevents.config.Settings;
import io.sparkevents.listener.PythonProgram;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.spark.SparkConf;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Opens the connection of an application; at most one is open, because a JVM has one SparkContext at a time.
 *
 * <p>The first caller opens the connection: the plugin, which Spark creates before the listeners, or the listener. If
 * both are configured, the second caller receives no connection, so that each event is reported once.
 */
public final class Connections {
  private static final Logger LOG = LoggerFactory.getLogger(Connections.class);

  /** The open connection, or null. */
  private static final AtomicReference<Connection> OPEN = new AtomicReference<>();

  static {
    PythonProgram.onEnd(Connections::pythonEnds);
  }

  private Connections() {}

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
          "[spark-events] this application already has a listener; ignoring the second one;"
              + " remove it from spark.extraListeners");
      return null;
    }
    boolean required = false;
    Connection made = null;
    String failure;
    try {
      Connection before = OPEN.getAndSet(null);
      if (before != null) {
        before.supersede();
      }
      Settings settings = Settings.read(conf, System.getenv());
      required = settings.required;
      failure = settings.given.problem;
      if (failure != null) {
        LOG.error("[spark-events] no events will be reported: {}", failure);
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
      LOG.error("[spark-events] cannot start; the job continues without events", defect);
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

  private static void pythonEnds(PythonProgram program) {
    Connection open = OPEN.get();
    if (open != null) {
      open.pythonEnds(program);
    }
  }

  /** Notes that a connection is being closed. */
  static void closed(Connection connection) {
    OPEN.compareAndSet(connection, null);
  }
}
