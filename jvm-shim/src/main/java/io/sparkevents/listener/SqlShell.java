package io.sparkevents.listener;

import io.sparkevents.queue.Threads;
import java.io.PrintStream;
import java.io.UnsupportedEncodingException;
import java.util.Arrays;
import org.apache.hadoop.hive.ql.session.SessionState;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Keeps the last error that the spark-sql shell printed.
 *
 * <p>Spark posts no event for a statement that it cannot parse (3.5: nor for most that it cannot analyse), and logs
 * neither. The shell prints the message to its session's error stream, a public field of Hive's session. This class
 * replaces that stream with one that keeps the last message and still prints it.
 */
public final class SqlShell {
  private static final Logger LOG = LoggerFactory.getLogger(SqlShell.class);
  private static final String MAIN = "org.apache.spark.sql.hive.thriftserver.SparkSQLCLIDriver";
  /** Class on the stack while Spark replaces the session's streams, after it has created the SparkContext. */
  private static final String STARTING = "org.apache.spark.sql.hive.thriftserver.SparkSQLEnv";
  private static final long LOOK_MILLIS = 10;
  private static final String SUCCESS = "Time taken: ";

  private static volatile String lastError;

  private SqlShell() {}

  /**
   * Watches the shell's error stream; does nothing without a shell.
   *
   * <p>Call it on the thread that creates the SparkContext.
   */
  public static void watch() {
    try {
      if (isIn(Thread.currentThread(), MAIN)) {
        Session.watch(Thread.currentThread());
      }
    } catch (Throwable notThisShell) {
      giveUp(notThisShell);
    }
  }

  /** Returns the last error that the shell printed; null if there is none or its last statement succeeded. */
  static String lastError() {
    return lastError;
  }

  private static boolean isIn(Thread thread, String type) {
    return Arrays.stream(thread.getStackTrace()).anyMatch(frame -> frame.getClassName().startsWith(type));
  }

  private static void giveUp(Throwable why) {
    LOG.debug("spark-events: cannot watch the errors of the spark-sql shell", why);
  }

  /** Separate class, because only the shell is guaranteed to have Hive on the class path. */
  private static final class Session {
    static void watch(Thread main) {
      SessionState session = SessionState.get();
      if (session != null) {
        Threads.start("shell", () -> attachUntilStarted(session, main));
      }
    }

    private static void attachUntilStarted(SessionState session, Thread main) {
      try {
        boolean starts;
        do {
          starts = isIn(main, STARTING);
          if (session.err != null && !(session.err instanceof Watch)) {
            session.err = new Watch(session.err);
          }
          Thread.sleep(LOOK_MILLIS);
        } while (starts);
      } catch (Throwable notThisShell) {
        giveUp(notThisShell);
      }
    }
  }

  private static final class Watch extends PrintStream {
    Watch(PrintStream next) throws UnsupportedEncodingException {
      // Same encoding as the stream that the shell creates.
      super(next, true, "UTF-8");
    }

    /** Keeps error messages; the shell prints stack traces with {@code println(Object)} instead. */
    @Override
    public void println(String text) {
      lastError = text == null || text.startsWith(SUCCESS) ? null : text;
      super.println(text);
    }
  }
}
