package io.sparkevents.listener;

import java.util.Map;
import java.util.regex.Pattern;

/**
 * Why the application is ending, as far as the threads of the driver tell.
 *
 * <p>Spark's own {@code ApplicationEnd} says exit code 0 also for {@code sys.exit(3)} and for an
 * exception at top level. What does tell is who is ending it at this moment. The same frames were seen
 * on 3.5, 4.0 and 4.3; {@code docs/decisions} has the table.
 */
public enum ApplicationOutcome {
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
  /** Spark could not go on: a thread of its own has failed, or the cluster manager has given the application up. */
  SPARK_STOPPED,
  /** The context could not be made: its constructor stops what it has started. */
  START_FAILED,
  /** A Python that had started this JVM as its gateway closed the connection. */
  GATEWAY_CLOSED,
  /** The same, and its exit hooks, which are installed, did not run: a signal has killed it, or {@code os._exit}. */
  PYTHON_DIED,
  /** The spark-sql shell is done; it is the one that gives its exit code to Spark (since 4.0). */
  SPARK_SQL,
  /** SIGTERM, as a resource manager sends it. */
  SIGTERM,
  /** SIGINT, as Ctrl-C sends it. */
  SIGINT,
  /** SIGHUP, as a terminal sends it that is closed. */
  SIGHUP,
  /** User code called {@code System.exit}. */
  EXITED,
  /** The same below YARN's ApplicationMaster, which counts it as a failure, whatever the code. */
  EXITED_ON_YARN,
  /** Spark exits the driver: an exception that no thread caught, a lost worker, a timeout. */
  SPARK_EXITED,
  /** YARN's ApplicationMaster exits behind the program; {@link ApplicationEnd} replaces it by the outcome. */
  YARN_MASTER,
  /** None of these could be told. */
  UNKNOWN;

  private static final String SUBMIT = "org.apache.spark.deploy.SparkSubmit";
  private static final String APPLICATION = "org.apache.spark.deploy.JavaMainApplication";
  private static final String CONTEXT = "org.apache.spark.SparkContext";
  private static final String GATEWAY = "org.apache.spark.api.python.PythonGatewayServer";
  /** The thread in which Spark stops itself. */
  private static final String STOPPER = "stop-spark-context";
  /** What speaks with a cluster manager: some of them stop the context in threads of their own. */
  private static final String BACKENDS = "org.apache.spark.scheduler.cluster.";

  private static final String MASTER = "org.apache.spark.deploy.yarn.ApplicationMaster";

  private static final Pattern LANGUAGE = Pattern.compile("(java|jdk|sun|scala)\\.");

  /** Looks at every thread of this JVM; to be called while the application ends. */
  static ApplicationOutcome observe(boolean mainThrew) {
    try {
      return of(Thread.getAllStackTraces(), mainThrew);
    } catch (RuntimeException notAllowed) {
      return UNKNOWN;
    }
  }

  /** Whether a Python has started this JVM as its gateway, as a plain {@code python app.py} does. */
  public static boolean isDrivenByPython() {
    for (StackTraceElement[] stack : Thread.getAllStackTraces().values()) {
      if (has(stack, GATEWAY)) {
        return true;
      }
    }
    return false;
  }

  /** Whether the program is known to have failed. */
  boolean isFailure() {
    return this == UNCAUGHT_EXCEPTION
        || this == PROGRAM_FAILED
        || this == SPARK_EXITED
        || this == EXITED_ON_YARN;
  }

  public static ApplicationOutcome of(Map<Thread, StackTraceElement[]> threads, boolean mainThrew) {
    ApplicationOutcome stop = null;
    ApplicationOutcome shutdown = null;
    boolean onYarn = false;
    for (Map.Entry<Thread, StackTraceElement[]> entry : threads.entrySet()) {
      String thread = entry.getKey().getName();
      StackTraceElement[] stack = entry.getValue();
      if (has(stack, "java.lang.Shutdown", "exit") && has(stack, "misc.Signal")) {
        // First of all: a signal to the whole group ends the Python, too, and then main exits as well.
        return signal(thread);
      }
      onYarn |= has(stack, MASTER);
      if (has(stack, "java.lang.ApplicationShutdownHooks", "runHooks")) {
        shutdown = shutdown(stack, mainThrew);
      } else if (has(stack, CONTEXT, "stop") && !has(stack, "ShutdownHook") && !isBySpark(stop)) {
        stop = stop(thread, stack);
      }
    }
    // Main may well return, or exit, because the context has been stopped; what it throws says more.
    if (isBySpark(stop) && shutdown != UNCAUGHT_EXCEPTION) {
      return stop;
    }
    // Whatever ends the JVM: a hook of the program's that stops the context does not know of it.
    if (shutdown != null) {
      return shutdown == EXITED && onYarn ? EXITED_ON_YARN : shutdown;
    }
    return stop == null ? UNKNOWN : stop;
  }

  private static boolean isBySpark(ApplicationOutcome stop) {
    return stop == SPARK_STOPPED || stop == START_FAILED;
  }

  /** Who has called {@code SparkContext.stop}: told by the frames below it, for above it Spark's own parts are stopped. */
  private static ApplicationOutcome stop(String thread, StackTraceElement[] stack) {
    if (thread.equals(STOPPER)) {
      return SPARK_STOPPED;
    }
    int below = stack.length;
    while (!is(stack[below - 1], CONTEXT, "stop")) {
      below--;
    }
    for (int i = below; i < stack.length; i++) {
      if (is(stack[i], CONTEXT, "<init>")) {
        return START_FAILED;
      }
      if (stack[i].getClassName().startsWith(BACKENDS)) {
        return SPARK_STOPPED;
      }
    }
    boolean byUser = !runsMain(stack) || has(stack, APPLICATION);
    return byUser ? STOPPED : SUBMIT_STOPPED;
  }

  private static ApplicationOutcome signal(String handlerThread) {
    for (ApplicationOutcome signal : new ApplicationOutcome[] {SIGTERM, SIGINT, SIGHUP}) {
      if (handlerThread.startsWith(signal.name())) {
        return signal;
      }
    }
    return UNKNOWN;
  }

  /** The stack is that of the thread which runs the JVM's shutdown hooks: the one that began it. */
  private static ApplicationOutcome shutdown(StackTraceElement[] stack, boolean mainThrew) {
    if (has(stack, "java.lang.Shutdown", "shutdown")) {
      return mainThrew ? UNCAUGHT_EXCEPTION : RETURNED;
    }
    if (has(stack, GATEWAY)) {
      return GATEWAY_CLOSED;
    }
    if (has(stack, "SparkSQLCLIDriver")) {
      return SPARK_SQL;
    }
    // Below the application's own frames, exit was called by user code.
    if (has(stack, SUBMIT) && !has(stack, APPLICATION) && !runsMain(stack)) {
      return PROGRAM_FAILED;
    }
    if (!isCalledBySpark(stack)) {
      return EXITED;
    }
    return has(stack, MASTER) ? YARN_MASTER : SPARK_EXITED;
  }

  private static boolean isCalledBySpark(StackTraceElement[] stack) {
    for (StackTraceElement frame : stack) {
      if (!LANGUAGE.matcher(frame.getClassName()).lookingAt()) {
        return frame.getClassName().startsWith("org.apache.spark.");
      }
    }
    return false;
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
      if (is(frame, type, method)) {
        return true;
      }
    }
    return false;
  }

  private static boolean is(StackTraceElement frame, String type, String method) {
    return frame.getClassName().equals(type) && frame.getMethodName().equals(method);
  }
}
