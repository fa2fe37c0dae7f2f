package io.sparkevents.listener;

import io.sparkevents.queue.Threads;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadInfo;
import java.lang.management.ThreadMXBean;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Samples the threads of streaming queries, because Spark has no callback for the start of a trigger.
 *
 * <p>A sample shows whether a query is working, or waiting for its next trigger or for data. Samples taken every second
 * show since when the query has been working. The threads are found by name, so queries of all sessions are included.
 * Runs on its own thread, never on Spark's listener thread.
 */
public final class QueryThreads {
  private static final Pattern NAME =
      Pattern.compile("stream execution thread for .*\\[id = [^,\\]]+, runId = ([^\\]]+)\\]", Pattern.DOTALL);
  /**
   * Classes whose frames do not help to locate a thread: the JDK, Scala, lambdas, and Spark's wrappers around actions.
   */
  private static final Pattern PLUMBING =
      Pattern.compile(
          "(java|javax|jdk|sun|com\\.sun|scala)\\..*|.*\\$\\$Lambda.*|org\\.apache\\.spark\\..*\\.("
              + "SQLExecution\\$|SparkSession|Dataset|QueryExecution\\$?|ArtifactManager|JobArtifactSet\\$"
              + "|ProgressContext|ProgressReporter|TriggerExecutor|ProcessingTimeExecutor|SingleBatchExecutor"
              + "|MultiBatchExecutor)|org\\.apache\\.spark\\.JobArtifactSet\\$");
  private static final ThreadMXBean JVM = ManagementFactory.getThreadMXBean();
  private static final long PERIOD_MILLIS = 1_000;
  /** A longer pause between two samples shows that the JVM was suspended, for example by a debugger. */
  private static final long PAUSE_MILLIS = 5 * PERIOD_MILLIS;
  private static final int MOST_FRAMES = 40;

  private Map<String, Long> busySince = new HashMap<>();
  private long last;
  private boolean started;

  /** Starts to sample every second, on a daemon thread. The thread ends when {@code isOver} is true. */
  public synchronized void start(BooleanSupplier isOver) {
    if (!started) {
      Threads.start("query-threads", () -> sample(isOver));
      started = true;
    }
  }

  private void sample(BooleanSupplier isOver) throws InterruptedException {
    while (!isOver.getAsBoolean()) {
      look("");
      Thread.sleep(PERIOD_MILLIS);
    }
  }

  /**
   * Samples all queries now; returns the fields that describe each query's thread in a record.
   *
   * @param framesOf string that contains the run ids whose frames are requested
   */
  synchronized List<Map<String, Object>> look(String framesOf) {
    // The monotonic clock: a step of the wall clock is no pause of the thread.
    long now = TimeUnit.NANOSECONDS.toMillis(System.nanoTime());
    if (now - last > PAUSE_MILLIS) {
      busySince.clear();
    }
    last = now;
    long wall = System.currentTimeMillis();
    Map<String, Long> busy = new HashMap<>();
    List<Map<String, Object>> samples = new ArrayList<>();
    // Read the threads without stacks first, because reading a stack stops its thread.
    for (ThreadInfo thread : JVM.getThreadInfo(JVM.getAllThreadIds())) {
      Matcher name = NAME.matcher(thread == null ? "" : thread.getThreadName());
      ThreadInfo stopped = name.matches() ? JVM.getThreadInfo(thread.getThreadId(), Integer.MAX_VALUE) : null;
      if (stopped == null) {
        continue;
      }
      String runId = name.group(1);
      StackTraceElement[] stack = stopped.getStackTrace();
      if (stack.length > 0 && !waits(stack)) {
        busy.put(runId, busySince.getOrDefault(runId, now));
      }
      Map<String, Object> sample = new LinkedHashMap<>();
      sample.put("run_id", runId);
      // Time of the first sample of the current, uninterrupted period of work.
      sample.put("busy_since", busy.containsKey(runId) ? wall - (now - busy.get(runId)) : 0L);
      sample.put(
          "continuous",
          Arrays.stream(stack).anyMatch(frame -> frame.getClassName().endsWith(".ContinuousExecution")));
      sample.put("frames", framesOf.contains(runId) ? frames(stack) : Collections.emptyList());
      samples.add(sample);
    }
    busySince = busy;
    return samples;
  }

  /** Whether the thread waits for the next trigger, or sleeps between two checks for new data. */
  static boolean waits(StackTraceElement[] stack) {
    for (StackTraceElement frame : stack) {
      if (frame.getClassName().equals("org.apache.spark.util.SystemClock")) {
        return frame.getMethodName().equals("waitTillTime");
      }
      if (!frame.getClassName().equals("java.lang.Thread")) {
        return stack[0].getClassName().equals("java.lang.Thread")
            && frame.getClassName().endsWith(".MicroBatchExecution");
      }
    }
    return true;
  }

  /** Returns the frames, innermost first; omits internal frames, except for the innermost frame. */
  private static List<String> frames(StackTraceElement[] stack) {
    List<String> frames = new ArrayList<>();
    for (StackTraceElement frame : stack) {
      if (frame.getMethodName().contains("runStream") || frames.size() == MOST_FRAMES) {
        break;
      }
      if (frames.isEmpty() || !PLUMBING.matcher(frame.getClassName()).matches()) {
        String line = frame.getLineNumber() > 0 ? ":" + frame.getLineNumber() : "";
        String place = frame.getClassName() + "." + frame.getMethodName();
        frames.add(Text.cut(place + "(" + frame.getFileName() + line + ")"));
      }
    }
    return frames;
  }
}
