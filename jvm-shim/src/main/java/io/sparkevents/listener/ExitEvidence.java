package io.sparkevents.listener;

import java.util.logging.Filter;
import java.util.logging.Level;
import java.util.logging.Logger;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.core.LogEvent;
import org.apache.logging.log4j.core.LoggerContext;
import org.apache.logging.log4j.core.appender.AbstractAppender;
import org.apache.logging.log4j.core.config.Configuration;
import org.apache.logging.log4j.core.config.LoggerConfig;
import org.apache.logging.log4j.core.config.Property;
import org.slf4j.LoggerFactory;

/**
 * Evidence of the driver's exit that is found only in handlers and logs.
 *
 * <p>It consists of the exception that leaves the main method of a Scala or Java program, the argument of {@code
 * System.exit}, and the reason that Spark logs before it exits the driver.
 *
 * <p>Since Java 21, the JDK logs each call to {@code System.exit} before the shutdown hooks run (see the implementation
 * note of {@code Runtime.exit}). In older versions, the exit code stays unknown.
 */
public final class ExitEvidence {
  private static final org.slf4j.Logger LOG = LoggerFactory.getLogger(ExitEvidence.class);
  private static final Pattern EXIT = Pattern.compile("Runtime\\.exit\\(\\) called with status: (-?\\d+)");
  /** Bits of the exit status that the operating system keeps. */
  private static final int MASK = 0xff;
  /** Keep a strong reference, because the log manager holds loggers only weakly. */
  private static final Logger EXITS = Logger.getLogger("java.lang.Runtime");

  private static boolean watched;
  private static volatile Throwable uncaught;
  private static volatile Integer exitCode;
  private static volatile Throwable loggedFailure;
  private static volatile Integer loggedExitCode;

  private ExitEvidence() {}

  /** Starts to observe the exit without changing the log output. */
  public static synchronized void watch() {
    if (watched) {
      return;
    }
    watched = true;
    watchMain();
    watchExits();
    try {
      SparksLog.watch();
    } catch (Throwable otherLogging) {
      LOG.debug("[spark-events] cannot watch what Spark logs when it exits", otherLogging);
    }
  }

  /** Returns the exception that left the main method, or null. */
  static Throwable uncaught() {
    return uncaught;
  }

  /** Returns the exit code of the process, from the argument of {@code System.exit}; null if it is unknown. */
  static Integer exitCode() {
    return exitCode;
  }

  /** Returns the last exception that Spark logged as the reason for its exit, or null. */
  static Throwable loggedFailure() {
    return loggedFailure;
  }

  /** Returns the exit code that the ApplicationMaster logged, or null. */
  static Integer loggedExitCode() {
    return loggedExitCode;
  }

  /** Returns the JVM's first thread, "main"; null if this thread has ended. */
  static Thread firstThread() {
    for (Thread thread : Thread.getAllStackTraces().keySet()) {
      if (thread.getId() == 1 && thread.getName().equals("main")) {
        return thread;
      }
    }
    return null;
  }

  /** Stores an exception that leaves main, because the stacks do not show it after main has ended. */
  private static void watchMain() {
    Thread main = firstThread();
    if (main != null) {
      Thread.UncaughtExceptionHandler next = main.getUncaughtExceptionHandler();
      main.setUncaughtExceptionHandler((thread, failure) -> {
        uncaught = failure;
        next.uncaughtException(thread, failure);
      });
    }
  }

  private static void watchExits() {
    if (!EXITS.isLoggable(Level.FINE)) {
      EXITS.setLevel(Level.FINE);
      EXITS.setUseParentHandlers(false);
    }
    Filter next = EXITS.getFilter();
    EXITS.setFilter(logged -> {
      Matcher status = EXIT.matcher(String.valueOf(logged.getMessage()));
      exitCode = status.matches() ? asProcess(status) : exitCode;
      return next == null || next.isLoggable(logged);
    });
  }

  private static Integer asProcess(Matcher status) {
    return Integer.parseInt(status.group(1)) & MASK;
  }

  /**
   * Reads two facts from Spark's log: an exception that no thread caught, and the exit of the program in a YARN
   * ApplicationMaster.
   *
   * <p>Spark reports neither fact to its listeners. This is a separate class because log4j2 may be missing.
   */
  private static final class SparksLog extends AbstractAppender {
    private static final String HANDLER = "org.apache.spark.util.SparkUncaughtExceptionHandler";
    private static final String MASTER = "org.apache.spark.deploy.yarn.ApplicationMaster";
    private static final Pattern REASON =
        Pattern.compile("(?:\\[Container in shutdown\\] )?(?:Uncaught exception|User class threw exception)");
    private static final Pattern STATUS =
        Pattern.compile("(?:User application exited with status|Final app status: \\w+, exitCode:) (-?\\d+).*", Pattern.DOTALL);

    private SparksLog() {
      super("spark-events-exit", null, null, true, Property.EMPTY_ARRAY);
    }

    /** Adds this appender to both loggers; the loggers keep their levels and appenders. */
    static void watch() {
      LoggerContext context = (LoggerContext) LogManager.getContext(false);
      Configuration configuration = context.getConfiguration();
      SparksLog appender = new SparksLog();
      appender.start();
      for (String name : new String[] {HANDLER, MASTER}) {
        LoggerConfig logger = configuration.getLoggers().get(name);
        if (logger == null) {
          // A logger with a null level inherits the level of its parent.
          logger = new LoggerConfig(name, null, true);
          configuration.addLogger(name, logger);
        }
        logger.addAppender(appender, org.apache.logging.log4j.Level.INFO, null);
      }
      context.updateLoggers();
    }

    @Override
    public void append(LogEvent event) {
      String message = event.getMessage().getFormattedMessage();
      // Check the message, because the ApplicationMaster also logs other exceptions.
      if (event.getThrown() != null && REASON.matcher(message).lookingAt()) {
        loggedFailure = event.getThrown();
      }
      Matcher status = STATUS.matcher(message);
      loggedExitCode = status.matches() ? asProcess(status) : loggedExitCode;
    }
  }
}
