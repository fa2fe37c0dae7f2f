package io.sparkevents.listener;

import io.sparkevents.queue.Threads;
import java.io.PrintStream;
import java.io.UnsupportedEncodingException;
import java.util.Arrays;
import java.util.stream.Stream;
import org.apache.hadoop.hive.ql.session.SessionState;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Stores the last error that the spark-sql shell printed.
 *
 * <p>If Spark cannot parse a statement, it posts no event and logs no message. In Spark 3.5, this is also true for most
 * statements that Spark cannot analyse. The shell prints the message to its session's error stream, a public field of
 * Hive's session. This class replaces the stream with a stream that stores the last message and still prints it.
 */
public final class SqlShell {
  private static final Logger LOG = LoggerFactory.getLogger(SqlShell.class);
  private static final String MAIN = "org.apache.spark.sql.hive.thriftserver.SparkSQLCLIDriver";
  /** Superclass of {@link #MAIN}: the shell of Hive. */
  private static final String HIVE_MAIN = "org.apache.hadoop.hive.cli.CliDriver";
  private static final String PROMPT = "jline.console.ConsoleReader";
  private static final long LOOK_MILLIS = 10;
  private static final String SUCCESS = "Time taken: ";

  private static volatile String lastError;

  private SqlShell() {}

  /**
   * Watches the shell's error stream; does nothing if no shell is running.
   *
   * <p>Call this method on the thread that creates the SparkContext.
   */
  public static void watch() {
    try {
      if (frames(Thread.currentThread()).anyMatch(frame -> frame.getClassName().startsWith(MAIN))) {
        Hive.watch(Thread.currentThread());
      }
    } catch (Throwable notThisShell) {
      giveUp(notThisShell);
    }
  }

  /** Returns the last error that the shell printed; null if there is none, or if the last statement succeeded. */
  static String lastError() {
    return lastError;
  }

  private static Stream<StackTraceElement> frames(Thread thread) {
    return Arrays.stream(thread.getStackTrace());
  }

  /** Returns whether the shell reads or runs statements. From then on, the shell does not replace the stream. */
  private static boolean isStarted(StackTraceElement frame) {
    switch (frame.getClassName()) {
      case MAIN:
      case HIVE_MAIN:
        return frame.getMethodName().startsWith("process");
      case PROMPT:
        return frame.getMethodName().equals("readLine");
      default:
        return false;
    }
  }

  private static void giveUp(Throwable why) {
    LOG.debug("[spark-events] cannot watch the errors of the spark-sql shell", why);
  }

  /** Separate class, because only a driver that runs the shell is guaranteed to have Hive on its class path. */
  private static final class Hive {
    static void watch(Thread main) {
      SessionState state = SessionState.get();
      if (state != null) {
        Threads.start("shell", () -> attachUntilStarted(state, main));
      }
    }

    /** The shell replaces the stream twice after creating the SparkContext, so one attachment is not sufficient. */
    private static void attachUntilStarted(SessionState state, Thread main) {
      try {
        boolean isStarted;
        do {
          isStarted = frames(main).anyMatch(SqlShell::isStarted);
          if (state.err != null && !(state.err instanceof Watch)) {
            state.err = new Watch(state.err);
          }
          Thread.sleep(LOOK_MILLIS);
        } while (!isStarted && main.isAlive());
      } catch (Throwable notThisShell) {
        giveUp(notThisShell);
      }
    }
  }

  private static final class Watch extends PrintStream {
    Watch(PrintStream next) throws UnsupportedEncodingException {
      // Use the same encoding as the stream that the shell creates.
      super(next, true, "UTF-8");
    }

    /**
     * Stores error messages. The shell prints stack traces with {@code println(Object)}, which this method does not
     * see.
     */
    @Override
    public void println(String text) {
      lastError = text == null || text.startsWith(SUCCESS) ? null : text;
      super.println(text);
    }
  }
}
