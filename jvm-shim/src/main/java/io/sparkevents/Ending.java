package io.sparkevents;

import java.util.Map;

/**
 * Why the application is ending, as far as the threads of the driver tell.
 *
 * <p>Spark's own {@code ApplicationEnd} says exit code 0 also for {@code sys.exit(3)} and for an
 * exception at top level. What does tell is who is ending it at this moment: user code that calls
 * {@code SparkContext.stop}, a main method that has returned, spark-submit that exits because the
 * program failed, the gateway of a Python that went away, or a signal.
 */
enum Ending {
  /** User code called {@code SparkContext.stop}, directly or through {@code SparkSession.stop}. */
  STOPPED,
  /** The main method returned and nobody had called stop: the JVM is going down by itself. */
  RETURNED,
  /** spark-submit exits because the program it ran has failed. */
  PROGRAM_FAILED,
  /** A Python that had started this JVM as its gateway closed the connection; with what outcome is unknown. */
  GATEWAY_CLOSED,
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

  /** Looks at every thread of this JVM; to be called while the application ends. */
  static Ending observe() {
    try {
      return of(Thread.getAllStackTraces());
    } catch (RuntimeException notAllowed) {
      return UNKNOWN;
    }
  }

  static Ending of(Map<Thread, StackTraceElement[]> threads) {
    Ending shutdown = null;
    boolean stopCalled = false;
    for (Map.Entry<Thread, StackTraceElement[]> entry : threads.entrySet()) {
      StackTraceElement[] stack = entry.getValue();
      if (calls(stack, "java.lang.Shutdown")) {
        shutdown = shutdown(entry.getKey().getName(), stack);
      } else if (calls(stack, "org.apache.spark.SparkContext", "stop")
          && !calls(stack, "ShutdownHookManager")) {
        stopCalled = true;
      }
    }
    // A stop by user code counts also while the JVM goes down: it came first and is being waited for.
    return stopCalled ? STOPPED : shutdown == null ? UNKNOWN : shutdown;
  }

  private static Ending shutdown(String thread, StackTraceElement[] stack) {
    if (calls(stack, "java.lang.Terminator") || calls(stack, "misc.Signal")) {
      for (Ending signal : new Ending[] {SIGTERM, SIGINT, SIGHUP}) {
        if (thread.startsWith(signal.name())) {
          return signal;
        }
      }
      return UNKNOWN;
    }
    if (calls(stack, "java.lang.Shutdown", "shutdown")) {
      return RETURNED;
    }
    if (calls(stack, "org.apache.spark.api.python.PythonGatewayServer")) {
      return GATEWAY_CLOSED;
    }
    // Only the frame that called exit tells: user code, too, runs below SparkSubmit's.
    StackTraceElement caller = callerOfExit(stack);
    if (caller != null && caller.getClassName().startsWith("org.apache.spark.")
        && calls(stack, "org.apache.spark.deploy.SparkSubmit")) {
      return PROGRAM_FAILED;
    }
    return EXITED;
  }

  private static StackTraceElement callerOfExit(StackTraceElement[] stack) {
    for (int i = 0; i + 1 < stack.length; i++) {
      if (stack[i].getClassName().equals("java.lang.System") && stack[i].getMethodName().equals("exit")) {
        return stack[i + 1];
      }
    }
    return null;
  }

  private static boolean calls(StackTraceElement[] stack, String type) {
    for (StackTraceElement frame : stack) {
      if (frame.getClassName().contains(type)) {
        return true;
      }
    }
    return false;
  }

  private static boolean calls(StackTraceElement[] stack, String type, String method) {
    for (StackTraceElement frame : stack) {
      if (frame.getClassName().equals(type) && frame.getMethodName().equals(method)) {
        return true;
      }
    }
    return false;
  }
}
