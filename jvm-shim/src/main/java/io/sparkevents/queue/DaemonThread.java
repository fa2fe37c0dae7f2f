package io.sparkevents.queue;

/** Threads of the shim, which never keep the JVM alive. */
public final class DaemonThread {
  private DaemonThread() {}

  public static Thread start(String name, Runnable work) {
    Thread thread = new Thread(work, "spark-events-" + name);
    thread.setDaemon(true);
    thread.start();
    return thread;
  }
}
