package io.sparkevents.queue;

/**
 * Starts the shim's threads, and handles interrupts uniformly: an interrupt ends the wait, and the interrupt flag stays
 * set.
 */
public final class Threads {
  /** Work that may block. */
  public interface Work {
    void run() throws InterruptedException;
  }

  private Threads() {}

  /** Creates a thread that does not keep the JVM alive. */
  public static Thread daemon(String name, Runnable work) {
    Thread thread = new Thread(work, "spark-events-" + name);
    thread.setDaemon(true);
    return thread;
  }

  /** Starts a thread that does not keep the JVM alive. */
  public static Thread start(String name, Work work) {
    Thread thread = daemon(name, () -> untilInterrupted(work));
    thread.start();
    return thread;
  }

  public static void untilInterrupted(Work work) {
    try {
      work.run();
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
    }
  }
}
