package io.sparkevents.listener;

import java.util.Arrays;
import java.util.Collection;
import java.util.EnumSet;
import java.util.Map;
import java.util.regex.Pattern;

/**
 * Reason why the application is ending, as observed in the threads of the driver.
 *
 * <p>Spark's own {@code ApplicationEnd} contains exit code 0 even after {@code sys.exit(3)} or an exception at top
 * level. The stack of the thread that ends the application shows the reason. The relevant frames are the same in Spark
 * 3.5, 4.0 and 4.3. {@code docs/outcomes.md} lists all outcomes.
 */
public enum ApplicationOutcome {
  /** User code called {@code SparkContext.stop}, directly or through {@code SparkSession.stop}. */
  STOPPED,
  /** The main method returned without calling stop, so the JVM shuts down by itself. */
  RETURNED,
  /** The main method of a Scala or Java program threw an exception. */
  UNCAUGHT_EXCEPTION,
  /** spark-submit exits because its program failed. */
  PROGRAM_FAILED,
  /** After the program has ended, spark-submit stops the context, for example on Kubernetes. */
  SUBMIT_STOPPED,
  /** Spark stopped itself: one of its threads failed, or the cluster manager abandoned the application. */
  SPARK_STOPPED,
  /** The SparkContext could not be created; its constructor stops the parts that it has started. */
  START_FAILED,
  /** The Python process that started this JVM as its gateway closed the connection. */
  GATEWAY_CLOSED,
  /** The Python gateway closed the connection without running its exit hooks: a signal or {@code os._exit} ended it. */
  PYTHON_DIED,
  /** The spark-sql shell exited. Since Spark 4.0, only this shell passes its exit code to Spark. */
  SPARK_SQL,
  /** SIGTERM, for example from a resource manager. */
  SIGTERM,
  /** SIGINT, for example from Ctrl-C. */
  SIGINT,
  /** SIGHUP, for example from a closed terminal. */
  SIGHUP,
  /** User code called {@code System.exit}. */
  EXITED,
  /** User code called {@code System.exit} in YARN's ApplicationMaster, which counts any exit code as a failure. */
  EXITED_ON_YARN,
  /** Spark exits the driver because of an exception that no thread caught, a lost worker or a timeout. */
  SPARK_EXITED,
  /**
   * YARN's ApplicationMaster exits after the program; {@link ApplicationEnd} replaces this constant with the actual
   * outcome.
   */
  YARN_MASTER,
  /** No known reason was found. */
  UNKNOWN;

  private static final String SUBMIT = "org.apache.spark.deploy.SparkSubmit";
  private static final String APPLICATION = "org.apache.spark.deploy.JavaMainApplication";
  private static final String CONTEXT = "org.apache.spark.SparkContext";
  private static final String GATEWAY = "org.apache.spark.api.python.PythonGatewayServer";
  /** Name of the thread in which Spark stops itself. */
  private static final String STOPPER = "stop-spark-context";
  /** Package of the cluster managers' backends. Some backends stop the context in their own threads. */
  private static final String BACKENDS = "org.apache.spark.scheduler.cluster.";

  private static final String HOOKS = "java.lang.ApplicationShutdownHooks";

  private static final String MASTER = "org.apache.spark.deploy.yarn.ApplicationMaster";

  private static final Pattern LANGUAGE = Pattern.compile("(javax?|jdk|(com\\.)?sun|scala)\\.");
  private static final Pattern PLATFORM = Pattern.compile("org\\.apache\\.(spark|hadoop)\\.");

  /** Inspects every thread of this JVM; call this method while the application ends. */
  static ApplicationOutcome observe(boolean mainThrew) {
    return of(Thread.getAllStackTraces(), mainThrew);
  }

  /** Returns whether a thread of this JVM is in {@code SparkContext.stop} and may leave it while the JVM exits. */
  public static boolean isStopping() {
    return isStopping(Thread.getAllStackTraces().values());
  }

  public static boolean isStopping(Collection<StackTraceElement[]> stacks) {
    // A stop does not end before the JVM if it waits for the thread that runs the shutdown hooks: the stop's own thread,
    // or the thread of a listener.
    boolean waitsForExit =
        stacks.stream()
            .filter(stack -> has(stack, HOOKS, "runHooks"))
            .anyMatch(stack -> has(stack, CONTEXT, "stop") || has(stack, "org.apache.spark.scheduler.AsyncEventQueue"));
    return !waitsForExit && stacks.stream().anyMatch(stack -> has(stack, CONTEXT, "stop"));
  }

  /** Returns whether a Python process, such as a plain {@code python app.py}, started this JVM as its gateway. */
  public static boolean isDrivenByPython() {
    return Thread.getAllStackTraces().values().stream().anyMatch(stack -> has(stack, GATEWAY));
  }

  /** Returns whether the program is known to have failed. */
  boolean isFailure() {
    return EnumSet.of(UNCAUGHT_EXCEPTION, PROGRAM_FAILED, SPARK_EXITED, EXITED_ON_YARN).contains(this);
  }

  /** Returns whether the argument of {@code System.exit} is the program's exit code. */
  boolean isExit() {
    return EnumSet.of(EXITED, EXITED_ON_YARN, PROGRAM_FAILED, SPARK_EXITED, SPARK_SQL, YARN_MASTER).contains(this);
  }

  public static ApplicationOutcome of(Map<Thread, StackTraceElement[]> threads, boolean mainThrew) {
    ApplicationOutcome stop = null;
    ApplicationOutcome shutdown = null;
    boolean onYarn = false;
    for (Map.Entry<Thread, StackTraceElement[]> entry : threads.entrySet()) {
      String thread = entry.getKey().getName();
      StackTraceElement[] stack = entry.getValue();
      if (has(stack, "java.lang.Shutdown", "exit") && has(stack, "misc.Signal")) {
        // A signal takes precedence: if it is sent to the process group, it also ends Python, and main exits as a
        // consequence.
        return signal(thread);
      }
      onYarn |= has(stack, MASTER);
      if (has(stack, HOOKS, "runHooks")) {
        shutdown = shutdown(stack, mainThrew);
      } else if (has(stack, CONTEXT, "stop") && !has(stack, "ShutdownHook") && !isBySpark(stop)) {
        stop = stop(thread, stack);
      }
    }
    // Main may return or exit because Spark stopped the context. An exception from main is better evidence.
    if (isBySpark(stop) && shutdown != UNCAUGHT_EXCEPTION) {
      return stop;
    }
    // The reason for the shutdown takes precedence over a stop of the context in the program's own shutdown hook.
    if (onYarn && (shutdown == EXITED || shutdown == UNKNOWN)) {
      return shutdown == EXITED ? EXITED_ON_YARN : YARN_MASTER;
    }
    if (shutdown != null) {
      return shutdown;
    }
    return stop == null ? UNKNOWN : stop;
  }

  private static boolean isBySpark(ApplicationOutcome stop) {
    return stop == SPARK_STOPPED || stop == START_FAILED;
  }

  /**
   * Returns the caller of {@code SparkContext.stop}, found in the frames below it; the frames above it belong to Spark.
   */
  private static ApplicationOutcome stop(String thread, StackTraceElement[] stack) {
    if (thread.equals(STOPPER)) {
      return SPARK_STOPPED;
    }
    int below = stack.length;
    while (!is(stack[below - 1], CONTEXT, "stop")) {
      below--;
    }
    StackTraceElement[] callers = Arrays.copyOfRange(stack, below, stack.length);
    if (has(callers, CONTEXT, "<init>")) {
      return START_FAILED;
    }
    if (has(callers, BACKENDS)) {
      return SPARK_STOPPED;
    }
    boolean byUser = !runsMain(stack) || has(stack, APPLICATION);
    return byUser ? STOPPED : SUBMIT_STOPPED;
  }

  private static ApplicationOutcome signal(String handlerThread) {
    return EnumSet.of(SIGTERM, SIGINT, SIGHUP).stream()
        .filter(signal -> handlerThread.startsWith(signal.name()))
        .findFirst()
        .orElse(UNKNOWN);
  }

  /** Returns the reason for the shutdown, found on the stack of the thread that started it and runs the hooks. */
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
    // If the application's frames are on the stack, user code called exit.
    if (has(stack, SUBMIT) && !has(stack, APPLICATION) && !runsMain(stack)) {
      return PROGRAM_FAILED;
    }
    StackTraceElement caller = caller(stack);
    if (caller == null) {
      return UNKNOWN;
    }
    if (!PLATFORM.matcher(caller.getClassName()).lookingAt()) {
      return EXITED;
    }
    return has(stack, MASTER) ? YARN_MASTER : SPARK_EXITED;
  }

  /** Returns the first frame outside the libraries of Java and Scala, or null. */
  private static StackTraceElement caller(StackTraceElement[] stack) {
    return Arrays.stream(stack)
        .filter(frame -> !LANGUAGE.matcher(frame.getClassName()).lookingAt())
        .findFirst()
        .orElse(null);
  }

  /** Returns the frame that called {@code System.exit}, or null; call this method while the shutdown hooks run. */
  static StackTraceElement exitCaller() {
    for (StackTraceElement[] stack : Thread.getAllStackTraces().values()) {
      if (has(stack, HOOKS, "runHooks")) {
        return caller(stack);
      }
    }
    return null;
  }

  private static boolean runsMain(StackTraceElement[] stack) {
    return Arrays.stream(stack)
        .anyMatch(frame -> frame.getClassName().startsWith(SUBMIT) && frame.getMethodName().endsWith("runMain"));
  }

  private static boolean has(StackTraceElement[] stack, String type) {
    return Arrays.stream(stack).anyMatch(frame -> frame.getClassName().contains(type));
  }

  private static boolean has(StackTraceElement[] stack, String type, String method) {
    return Arrays.stream(stack).anyMatch(frame -> is(frame, type, method));
  }

  private static boolean is(StackTraceElement frame, String type, String method) {
    return frame.getClassName().equals(type) && frame.getMethodName().equals(method);
  }
}
