package io.sparkevents.listener;

import java.util.logging.Handler;
import java.util.logging.Level;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The exit code that {@code System.exit} is called with. Since Java 21 the JDK logs each call (the implementation note of
 * {@code Runtime.exit}), before the shutdown hooks run; older ones do not, so there the code stays unknown.
 */
public final class ExitCode extends Handler {
  private static final Pattern STATUS = Pattern.compile("Runtime\\.exit\\(\\) called with status: (-?\\d+)");
  /** What a process passes on of it. */
  private static final int MASK = 0xff;
  /** The log manager itself holds a logger only weakly. */
  private static final Logger EXITS = Logger.getLogger("java.lang.Runtime");

  private static volatile Integer known;

  private ExitCode() {}

  /** Listens from now on; changes nothing that is logged. */
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

  /** As the process ends with it, or null. */
  static Integer known() {
    return known;
  }

  /** What becomes of the argument of {@code System.exit}. */
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
