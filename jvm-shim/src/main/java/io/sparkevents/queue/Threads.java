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

  /** Starts a thread that does not keep the JVM alive. */
  public static Thread start(String name, Work work) {
    Thread thread = new Thread(() -> untilInterrupted(work), "spark-events-" + name);
    thread.setDaemon(true);
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
