package io.sparkevents;

import static io.sparkevents.Checks.is;

import io.sparkevents.listener.ApplicationOutcome;
import java.util.ArrayDeque;
import java.util.LinkedHashMap;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** Tests that the listener determines from recorded threads why an application ended. */
final class ApplicationOutcomeTest {
  /** The frames of a thread determine why the application ended. */
  @Test
  void endings() {
    String submit = "org.apache.spark.deploy.SparkSubmit.runMain org.apache.spark.deploy.SparkSubmit$.main";
    String hooks = "java.lang.ApplicationShutdownHooks.runHooks ";
    is(ending("Thread-4", "org.apache.spark.SparkContext.stop py4j.GatewayConnection.run"), "STOPPED");
    is(ending("DestroyJavaVM", hooks + "java.lang.Shutdown.shutdown"), "RETURNED");
    is(ending("main", hooks + "java.lang.Shutdown.exit " + "org.apache.spark.deploy.SparkSubmit.doSubmit"), "PROGRAM_FAILED");
    is(ending("main", hooks + "java.lang.Shutdown.exit App.main " + submit), "EXITED");
    is(ending("main", hooks + "java.lang.Shutdown.exit java.lang.System.exit org.apache.spark.deploy.yarn.ApplicationMaster$.main"), "YARN_MASTER");
    is(ending("main", hooks + "java.lang.Shutdown.exit org.apache.hadoop.util.ExitUtil.terminate org.apache.spark.deploy.yarn.ApplicationMaster.run"), "YARN_MASTER");
    is(ending(false, "main", "org.apache.spark.deploy.yarn.ApplicationMaster.run", "cut", hooks + "java.lang.Shutdown.exit"), "YARN_MASTER");
    is(ending("worker", hooks + "java.lang.Shutdown.exit org.apache.spark.util.SparkUncaughtExceptionHandler.uncaughtException"), "SPARK_EXITED");
    is(ending(false, "main", "org.apache.spark.deploy.yarn.ApplicationMaster.runDriver", "Driver", hooks + "java.lang.Shutdown.exit App.main"), "EXITED_ON_YARN");
    is(ending("main", hooks + "java.lang.Shutdown.exit scala.sys.package$.exit App.main " + submit), "EXITED");
    is(ending("SIGTERM handler", hooks + "java.lang.Shutdown.exit java.lang.Terminator$1.handle jdk.internal.misc.Signal$1.run"), "SIGTERM");
    is(ending("main", "java.lang.Thread.sleep"), "UNKNOWN");
    is(ending("main", hooks + "java.lang.Shutdown.exit org.apache.spark.api.python.PythonGatewayServer$.main"), "GATEWAY_CLOSED");
    is(ending("main", "org.apache.spark.SparkContext.stop " + submit), "SUBMIT_STOPPED");
    is(ending("main", "org.apache.spark.SparkContext.stop App.main org.apache.spark.deploy.JavaMainApplication.start " + submit), "STOPPED");
  }

  /** Spark stops itself in its own thread, in a thread of the cluster backend, or after a failed start. */
  @Test
  void endingsThatAreSparksOwn() {
    String backend = "org.apache.spark.scheduler.cluster.";
    String stop = "org.apache.spark.SparkContext.stop ";
    is(ending("stop-spark-context", stop + "org.apache.spark.SparkContext$$anon$3.run"), "SPARK_STOPPED");
    is(ending("yarn", stop + backend + "YarnClientSchedulerBackend$MonitorThread.run"), "SPARK_STOPPED");
    is(ending("main", stop + "org.apache.spark.SparkContext.<init> App.main"), "START_FAILED");
    String stopped = backend + "CoarseGrainedSchedulerBackend.stop " + stop;
    is(ending("main", stopped + "org.apache.spark.SparkContext.stop App.main"), "STOPPED");
    is(ending("bus", stop + "Mine.onJobEnd org.apache.spark.scheduler.SparkListenerBus.doPostEvent"), "STOPPED");
  }

  /**
   * If a program's hook stops the context, the JVM's exit determines the outcome. If Spark stops the context, Spark's
   * reason does.
   */
  @Test
  void endingsWhileTheJvmEnds() {
    String hooks = "java.lang.ApplicationShutdownHooks.runHooks java.lang.Shutdown.";
    String stop = "org.apache.spark.SparkContext.stop java.lang.Thread.run";
    is(ending(false, "Thread-9", stop, "DestroyJavaVM", hooks + "shutdown"), "RETURNED");
    is(ending(true, "Thread-9", stop, "DestroyJavaVM", hooks + "shutdown"), "UNCAUGHT_EXCEPTION");
    is(ending(false, "Thread-9", stop, "main", hooks + "exit App.main"), "EXITED");
    is(ending(false, "stop-spark-context", stop, "DestroyJavaVM", hooks + "shutdown"), "SPARK_STOPPED");
    is(ending(true, "stop-spark-context", stop, "DestroyJavaVM", hooks + "shutdown"), "UNCAUGHT_EXCEPTION");
    is(ending(false, "stop-spark-context", stop, "main", stop), "SPARK_STOPPED");
    is(ending(false, "main", stop, "stop-spark-context", stop), "SPARK_STOPPED");
  }

  /** The JVM's exit waits for a stop of the context, unless the stop waits for the exit. */
  @Test
  void stopsThatTheExitWaitsFor() {
    String hooks = "java.lang.ApplicationShutdownHooks.runHooks java.lang.Shutdown.exit ";
    String stop = "org.apache.spark.SparkContext.stop java.lang.Thread.run";
    is(isStopping("main", hooks + "App.main"), false);
    is(isStopping("main", hooks + "App.main", "stop-spark-context", stop), true);
    is(isStopping("main", hooks + "Plugin.shutdown " + stop), false);
    String bus = "Mine.onApplicationEnd org.apache.spark.scheduler.AsyncEventQueue.dispatch";
    is(isStopping("main", stop, "spark-listener-group-shared", hooks + bus), false);
  }

  private static boolean isStopping(String... threads) {
    return ApplicationOutcome.isStopping(stacks(threads).values());
  }

  private static ApplicationOutcome ending(String thread, String frames) {
    return ending(false, thread, frames);
  }

  /** Returns the outcome for pairs of a thread's name and its frames, topmost frame first. */
  private static ApplicationOutcome ending(boolean mainThrew, String... threads) {
    return ApplicationOutcome.of(stacks(threads), mainThrew);
  }

  private static Map<Thread, StackTraceElement[]> stacks(String... threads) {
    Map<Thread, StackTraceElement[]> seen = new LinkedHashMap<>();
    for (int i = 0; i < threads.length; i += 2) {
      ArrayDeque<StackTraceElement> stack = new ArrayDeque<>();
      for (String frame : threads[i + 1].split(" ")) {
        int dot = frame.lastIndexOf('.');
        stack.add(new StackTraceElement(frame.substring(0, dot), frame.substring(dot + 1), null, 1));
      }
      seen.put(new Thread(threads[i]), stack.toArray(new StackTraceElement[0]));
    }
    return seen;
  }
}
