package io.sparkevents.listener;

import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.core.LogEvent;
import org.apache.logging.log4j.core.LoggerContext;
import org.apache.logging.log4j.core.appender.AbstractAppender;
import org.apache.logging.log4j.core.config.Configuration;
import org.apache.logging.log4j.core.config.LoggerConfig;
import org.apache.logging.log4j.core.config.Property;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Reads the reason from Spark's log before Spark exits the driver.
 *
 * <p>The reason is the exception that no thread caught, or how the program of YARN's ApplicationMaster ended. Spark
 * passes neither to its listeners. Without log4j2 both stay unknown.
 */
public final class LoggedExit {
  private static final Logger LOG = LoggerFactory.getLogger(LoggedExit.class);
  private static final String HANDLER = "org.apache.spark.util.SparkUncaughtExceptionHandler";
  private static final String MASTER = "org.apache.spark.deploy.yarn.ApplicationMaster";
  private static final Pattern REASON =
      Pattern.compile("(?:\\[Container in shutdown\\] )?(?:Uncaught exception|User class threw exception)");
  private static final Pattern STATUS =
      Pattern.compile("(?:User application exited with status|Final app status: \\w+, exitCode:) (-?\\d+).*", Pattern.DOTALL);

  private static boolean watched;
  private static volatile Throwable failure;
  private static volatile Integer exitCode;

  private LoggedExit() {}

  public static synchronized void watch() {
    if (!watched) {
      watched = true;
      try {
        Watch.attach();
      } catch (Throwable otherLogging) {
        LOG.debug("spark-events: cannot watch what Spark logs when it exits", otherLogging);
      }
    }
  }

  /** Returns the last exception that Spark logged as the reason for its exit, or null. */
  static Throwable failure() {
    return failure;
  }

  /** Returns the exit code that the ApplicationMaster logged, or null. */
  static Integer exitCode() {
    return exitCode;
  }

  /** Separate class, because log4j2 may be missing. */
  private static final class Watch extends AbstractAppender {
    private Watch() {
      super("spark-events-exit", null, null, true, Property.EMPTY_ARRAY);
    }

    /** Adds this appender to both loggers; they keep their levels and appenders. */
    static void attach() {
      LoggerContext context = (LoggerContext) LogManager.getContext(false);
      Configuration configuration = context.getConfiguration();
      Watch watch = new Watch();
      watch.start();
      for (String name : new String[] {HANDLER, MASTER}) {
        LoggerConfig logger = configuration.getLoggers().get(name);
        if (logger == null) {
          // A null level is inherited from the parent.
          logger = new LoggerConfig(name, null, true);
          configuration.addLogger(name, logger);
        }
        logger.addAppender(watch, Level.INFO, null);
      }
      context.updateLoggers();
    }

    @Override
    public void append(LogEvent event) {
      String message = event.getMessage().getFormattedMessage();
      // The ApplicationMaster also logs other exceptions.
      if (event.getThrown() != null && REASON.matcher(message).lookingAt()) {
        failure = event.getThrown();
      }
      Matcher status = STATUS.matcher(message);
      if (status.matches()) {
        exitCode = ExitCode.asProcess(Integer.parseInt(status.group(1)));
      }
    }
  }
}
