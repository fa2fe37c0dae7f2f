package io.sparkevents.listener;

import io.sparkevents.queue.BoundedMap;
import java.lang.management.ManagementFactory;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.ExceptionFailure;
import org.apache.spark.TaskEndReason;
import org.apache.spark.executor.ExecutorMetrics;

/**
 * The largest memory that Spark has measured in the driver, in any executor, and in each executor.
 *
 * <p>The values are those of the heap, other memory of the JVM, and Python processes. Used by the listener thread only.
 */
final class MemoryPeaks {
  private static final String[] METRICS = {"JVMHeapMemory", "JVMOffHeapMemory", "ProcessTreePythonRSSMemory"};
  /** The failed task in Spark's message about a failed stage or job; the same in {@code memory_peaks.py}. */
  private static final Pattern FAILED_TASK = Pattern.compile("\\(TID \\d+\\) \\(\\S+ executor ([^\\s)]+)\\)");
  /** Executors that are remembered, the last measured ones, because a long application may have had many. */
  private static final int MOST_EXECUTORS = 10_000;
  private static final int MOST_FAILURES = 64;

  private final long[] driver = new long[METRICS.length];
  private final long[] anyExecutor = new long[METRICS.length];
  private final Map<String, long[]> executors = new LinkedHashMap<String, long[]>(16, 0.75f, true) {
    @Override
    protected boolean removeEldestEntry(Map.Entry<String, long[]> eldest) {
      return size() > MOST_EXECUTORS;
    }
  };

  /** Executor of the last task that failed with a message: Spark 4 repeats an error of user code without its task. */
  private final Map<String, String> failed = new BoundedMap<>(MOST_FAILURES);

  /** Remembers the executor of a failed task. */
  void failed(String executor, TaskEndReason reason) {
    if (reason instanceof ExceptionFailure && ((ExceptionFailure) reason).description() != null) {
      String message = ((ExceptionFailure) reason).description();
      failed.remove(message);
      failed.put(message, executor);
    }
  }

  /** Includes the peaks of an executor, or of the driver; {@code metrics} may be null. */
  void add(String executor, ExecutorMetrics metrics) {
    if (metrics == null) {
      return;
    }
    if (executor.equals(RunningWork.DRIVER)) {
      raise(driver, metrics);
    } else {
      raise(anyExecutor, metrics);
      raise(executors.computeIfAbsent(executor, id -> new long[METRICS.length]), metrics);
    }
  }

  private static void raise(long[] peaks, ExecutorMetrics metrics) {
    for (int i = 0; i < METRICS.length; i++) {
      peaks[i] = Math.max(peaks[i], metrics.getMetricValue(METRICS[i]));
    }
  }

  /** Returns the driver's peaks; its heap is measured now, too. */
  long[] driver() {
    driver[0] = Math.max(driver[0], ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed());
    return driver.clone();
  }

  /** Returns the highest peaks of any executor. */
  long[] anyExecutor() {
    return anyExecutor.clone();
  }

  /**
   * Returns the fields of {@code MemoryPeaks} in {@code records/types.py}.
   *
   * @param failure Spark's message. If it names the failed task, or is that of a task, the peaks are those of the task's
   *     executor.
   */
  Map<String, Object> of(String failure) {
    long[] ofDriver = driver();
    Matcher task = FAILED_TASK.matcher(failure);
    String id = task.find() ? task.group(1) : failed.getOrDefault(failure, "");
    long[] executor = anyExecutor;
    if (id.equals(RunningWork.DRIVER)) {
      executor = ofDriver;
    } else if (!id.isEmpty()) {
      executor = executors.getOrDefault(id, new long[METRICS.length]);
    }
    Map<String, Object> peaks = new LinkedHashMap<>();
    peaks.put("executor", id);
    peaks.put("driver_heap", ofDriver[0]);
    peaks.put("executor_heap", executor[0]);
    peaks.put("executor_offheap", executor[1]);
    peaks.put("executor_python", executor[2]);
    return peaks;
  }
}
