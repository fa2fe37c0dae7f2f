package io.sparkevents.listener;

import java.util.logging.Handler;
import java.util.logging.Level;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Reads the exit code of {@code System.exit} from the JDK's log.
 *
 * <p>Since Java 21 the JDK logs each call before the shutdown hooks run (see the implementation note of {@code
 * Runtime.exit}). In older versions the exit code stays unknown.
 */
public final class ExitCode extends Handler {
  private static final Pattern STATUS = Pattern.compile("Runtime\\.exit\\(\\) called with status: (-?\\d+)");
  /** The bits of the status that the operating system keeps. */
  private static final int MASK = 0xff;
  /** Strong reference, because the log manager holds loggers only weakly. */
  private static final Logger EXITS = Logger.getLogger("java.lang.Runtime");

  private static volatile Integer known;

  private ExitCode() {}

  /** Starts to listen, without a change to the log output. */
  public static synchronized void watch() {
    for (Handler handler : EXITS.getHandlers()) {
      if (handler instanceof ExitCode) {
        return;
      }
    }
    if (!EXITS.isLoggable(Level.FINE)) {
      EXITS.setLevel(Level.FINE);
      EXITS.setUseParentHandlers(false);
    }
    EXITS.addHandler(new ExitCode());
  }

  /** Returns the exit code of the process, or null if it is unknown. */
  static Integer known() {
    return known;
  }

  /** Returns the exit code of the process for an argument of {@code System.exit}. */
  static int asProcess(int status) {
    return status & MASK;
  }

  @Override
  public void publish(LogRecord record) {
    Matcher status = STATUS.matcher(String.valueOf(record.getMessage()));
    if (status.matches()) {
      known = asProcess(Integer.parseInt(status.group(1)));
    }
  }

  @Override
  public void flush() {}

  @Override
  public void close() {}
}
