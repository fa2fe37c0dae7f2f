package io.sparkevents.listener;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.BooleanSupplier;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Samples the threads of streaming queries, because Spark has no callback for the start of a trigger.
 *
 * <p>A sample shows whether a query waits for its next trigger or for data, or works. The samples of one query, one a
 * second, show since when it works. The threads are found by name, so queries of every session are found. Runs on its
 * own thread, never on Spark's listener thread.
 */
public final class QueryThreads {
  /** State of one query's thread. */
  static final class Sample {
    final String runId;
    /** First sample of an unbroken series in which the query worked; 0 if it waits. */
    final long busySince;
    final boolean isContinuous;
    /** Innermost first, without plumbing but for the innermost; empty unless asked for. */
    final List<String> frames;

    private Sample(String runId, long busySince, boolean isContinuous, List<String> frames) {
      this.runId = runId;
      this.busySince = busySince;
      this.isContinuous = isContinuous;
      this.frames = frames;
    }
  }

  private static final Pattern NAME =
      Pattern.compile("stream execution thread for .*\\[id = [^,\\]]+, runId = ([^\\]]+)\\]", Pattern.DOTALL);
  /** Classes that say nothing about the place: the JDK, Scala, lambdas, and Spark's wrappers around every action. */
  private static final Pattern PLUMBING =
      Pattern.compile(
          "(java|javax|jdk|sun|com\\.sun|scala)\\..*|.*\\$\\$Lambda.*|org\\.apache\\.spark\\..*\\.("
              + "SQLExecution\\$|SparkSession|Dataset|QueryExecution\\$?|ArtifactManager|JobArtifactSet\\$"
              + "|ProgressContext|ProgressReporter|TriggerExecutor|ProcessingTimeExecutor|SingleBatchExecutor"
              + "|MultiBatchExecutor)|org\\.apache\\.spark\\.JobArtifactSet\\$");
  private static final long PERIOD_MILLIS = 1_000;
  /** A longer pause between two samples means that the JVM stood still, as under a debugger. */
  private static final long PAUSE_MILLIS = 5 * PERIOD_MILLIS;
  private static final int MOST_FRAMES = 40;

  private Map<String, Long> busySince = new HashMap<>();
  private long last;
  private Thread sampler;

  /** Starts to sample every second, on a daemon thread that ends when {@code isOver} is true. */
  public synchronized void start(BooleanSupplier isOver) {
    if (sampler != null) {
      return;
    }
    sampler =
        new Thread(
            () -> {
              try {
                while (!isOver.getAsBoolean()) {
                  look("");
                  Thread.sleep(PERIOD_MILLIS);
                }
              } catch (InterruptedException stopped) {
                Thread.currentThread().interrupt();
              }
            },
            "spark-events-query-threads");
    sampler.setDaemon(true);
    sampler.start();
  }

  /**
   * Samples all queries now.
   *
   * @param framesOf text that contains the run ids whose frames are wanted
   */
  synchronized List<Sample> look(String framesOf) {
    long now = System.currentTimeMillis();
    if (now - last > PAUSE_MILLIS || now < last) {
      busySince.clear();
    }
    last = now;
    Map<String, Long> busy = new HashMap<>();
    List<Sample> samples = new ArrayList<>();
    for (Thread thread : threads()) {
      Matcher name = NAME.matcher(String.valueOf(thread.getName()));
      if (!name.matches()) {
        continue;
      }
      String runId = name.group(1);
      StackTraceElement[] stack = thread.getStackTrace();
      boolean waits = stack.length == 0 || waits(stack);
      if (!waits) {
        busy.put(runId, busySince.getOrDefault(runId, now));
      }
      boolean isContinuous = false;
      for (StackTraceElement frame : stack) {
        isContinuous |= frame.getClassName().endsWith(".ContinuousExecution");
      }
      List<String> frames = framesOf.contains(runId) ? frames(stack) : Collections.emptyList();
      samples.add(new Sample(runId, busy.getOrDefault(runId, 0L), isContinuous, frames));
    }
    busySince = busy;
    return samples;
  }

  /** Returns all live threads; cheaper than their stacks, which need every thread to stop. */
  private static List<Thread> threads() {
    ThreadGroup root = Thread.currentThread().getThreadGroup();
    while (root.getParent() != null) {
      root = root.getParent();
    }
    Thread[] all = new Thread[root.activeCount() + 16];
    int count = root.enumerate(all, true);
    while (count == all.length) {
      all = new Thread[2 * all.length];
      count = root.enumerate(all, true);
    }
    return Arrays.asList(all).subList(0, count);
  }

  /** Whether the thread waits for the time of the next trigger, or sleeps between two looks for data. */
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

  private static List<String> frames(StackTraceElement[] stack) {
    List<String> frames = new ArrayList<>();
    for (StackTraceElement frame : stack) {
      if (frame.getMethodName().contains("runStream") || frames.size() == MOST_FRAMES) {
        break;
      }
      if (frames.isEmpty() || !PLUMBING.matcher(frame.getClassName()).matches()) {
        String line = frame.getLineNumber() > 0 ? ":" + frame.getLineNumber() : "";
        frames.add(
            frame.getClassName() + "." + frame.getMethodName() + "(" + frame.getFileName() + line + ")");
      }
    }
    return frames;
  }
}
