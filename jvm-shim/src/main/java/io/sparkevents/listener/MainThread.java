package io.sparkevents.listener;

/**
 * Notices an exception that leaves the main method of a Scala or Java program.
 *
 * <p>Its stacks look like those of a program that returned. What tells is the handler that the JVM
 * calls: the one in place is wrapped, and called as before.
 */
public final class MainThread {
  private static volatile Throwable uncaught;

  private MainThread() {}

  /** Watches the thread called "main", if there is one and it is not watched already. */
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

  /** What has left the main method, or null. */
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
