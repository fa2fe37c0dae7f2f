package io.sparkevents;

import java.util.Map;

/**
 * Why the application is ending, as far as the threads of the driver tell.
 *
 * <p>Spark's own {@code ApplicationEnd} says exit code 0 also for {@code sys.exit(3)} and for an
 * exception at top level. What does tell is who is ending it at this moment. The same frames were seen
 * on 3.5, 4.0 and 4.3; {@code docs/decisions} has the table.
 */
enum Ending {
  /** User code called {@code SparkContext.stop}, directly or through {@code SparkSession.stop}. */
  STOPPED,
  /** The main method returned and nobody had called stop: the JVM is going down by itself. */
  RETURNED,
  /** The main method of a Scala or Java program threw an exception. */
  UNCAUGHT_EXCEPTION,
  /** spark-submit exits because the program it ran has failed. */
  PROGRAM_FAILED,
  /** spark-submit itself stops the context behind the program, as it does on Kubernetes. */
  SUBMIT_STOPPED,
  /** A Python that had started this JVM as its gateway closed the connection. */
  GATEWAY_CLOSED,
  /** The spark-sql shell is done; it is the one that gives its exit code to Spark (since 4.0). */
  SPARK_SQL,
  /** SIGTERM, as a resource manager sends it. */
  SIGTERM,
  /** SIGINT, as Ctrl-C sends it. */
  SIGINT,
  /** SIGHUP, as a terminal sends it that is closed. */
  SIGHUP,
  /** User code called {@code System.exit}; with which code cannot be seen. */
  EXITED,
  /** None of these could be told. */
  UNKNOWN;

  private static final String SUBMIT = "org.apache.spark.deploy.SparkSubmit";
  private static final String APPLICATION = "org.apache.spark.deploy.JavaMainApplication";

  /** Looks at every thread of this JVM; to be called while the application ends. */
  static Ending observe(boolean mainThrew) {
    try {
      return of(Thread.getAllStackTraces(), mainThrew);
    } catch (RuntimeException notAllowed) {
      return UNKNOWN;
    }
  }

  static Ending of(Map<Thread, StackTraceElement[]> threads, boolean mainThrew) {
    Ending stop = null;
    Ending shutdown = UNKNOWN;
    for (Map.Entry<Thread, StackTraceElement[]> entry : threads.entrySet()) {
      StackTraceElement[] stack = entry.getValue();
      if (has(stack, "java.lang.Shutdown", "exit") && has(stack, "misc.Signal")) {
        // First of all: a signal to the whole group ends the Python, too, and then main exits as well.
        return signal(entry.getKey().getName());
      }
      if (has(stack, "java.lang.ApplicationShutdownHooks", "runHooks")) {
        shutdown = shutdown(stack, mainThrew);
      } else if (has(stack, "org.apache.spark.SparkContext", "stop") && !has(stack, "ShutdownHook")) {
        boolean byUser = !runsMain(stack) || has(stack, APPLICATION);
        stop = byUser ? STOPPED : SUBMIT_STOPPED;
      }
    }
    // A stop that is under way came before the shutdown, which waits for it.
    return stop != null ? stop : shutdown;
  }

  private static Ending signal(String handlerThread) {
    for (Ending signal : new Ending[] {SIGTERM, SIGINT, SIGHUP}) {
      if (handlerThread.startsWith(signal.name())) {
        return signal;
      }
    }
    return UNKNOWN;
  }

  /** The stack is that of the thread which runs the JVM's shutdown hooks: the one that began it. */
  private static Ending shutdown(StackTraceElement[] stack, boolean mainThrew) {
    if (has(stack, "java.lang.Shutdown", "shutdown")) {
      return mainThrew ? UNCAUGHT_EXCEPTION : RETURNED;
    }
    if (has(stack, "org.apache.spark.api.python.PythonGatewayServer")) {
      return GATEWAY_CLOSED;
    }
    if (has(stack, "SparkSQLCLIDriver")) {
      return SPARK_SQL;
    }
    // Below the application's own frames, exit was called by user code.
    return has(stack, SUBMIT) && !has(stack, APPLICATION) && !runsMain(stack) ? PROGRAM_FAILED : EXITED;
  }

  private static boolean runsMain(StackTraceElement[] stack) {
    for (StackTraceElement frame : stack) {
      if (frame.getClassName().startsWith(SUBMIT) && frame.getMethodName().endsWith("runMain")) {
        return true;
      }
    }
    return false;
  }

  private static boolean has(StackTraceElement[] stack, String type) {
    for (StackTraceElement frame : stack) {
      if (frame.getClassName().contains(type)) {
        return true;
      }
    }
    return false;
  }

  private static boolean has(StackTraceElement[] stack, String type, String method) {
    for (StackTraceElement frame : stack) {
      if (frame.getClassName().equals(type) && frame.getMethodName().equals(method)) {
        return true;
      }
    }
    return false;
  }
}
