package io.sparkevents.listener;

/**
 * Detects an exception that leaves the main method of a Scala or Java program.
 *
 * <p>The thread stacks look like those of a program that returned, so this class wraps the thread's uncaught exception
 * handler and still calls the original one.
 */
public final class MainThread {
  private static volatile Throwable uncaught;

  private MainThread() {}

  /** Watches the thread called "main", if it exists and is not watched yet. */
  public static void watch() {
    for (Thread thread : Thread.getAllStackTraces().keySet()) {
      if (thread.getId() == 1 && thread.getName().equals("main")) {
        Thread.UncaughtExceptionHandler present = thread.getUncaughtExceptionHandler();
        if (!(present instanceof Watch)) {
          thread.setUncaughtExceptionHandler(new Watch(present));
        }
        return;
      }
    }
  }

  /** Returns the exception that left the main method, or null. */
  static Throwable uncaught() {
    return uncaught;
  }

  private static final class Watch implements Thread.UncaughtExceptionHandler {
    private final Thread.UncaughtExceptionHandler next;

    Watch(Thread.UncaughtExceptionHandler next) {
      this.next = next;
    }

    @Override
    public void uncaughtException(Thread thread, Throwable failure) {
      uncaught = failure;
      next.uncaughtException(thread, failure);
    }
  }
}
