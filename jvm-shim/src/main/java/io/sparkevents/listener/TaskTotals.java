package io.sparkevents.listener;

import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.spark.executor.ShuffleReadMetrics;
import org.apache.spark.executor.ShuffleWriteMetrics;
import org.apache.spark.executor.TaskMetrics;
import org.apache.spark.scheduler.TaskInfo;

/**
 * Sums over the ended task attempts of a stage attempt, and the number of its speculative copies, with quantiles of their durations and inputs.
 *
 * <p>{@code StageTotals} in {@code records.py} defines the values; a replay ({@code totals.py}) computes equal values.
 * The listener thread updates the sums until the stage is completed; afterwards, the writer thread reads them.
 */
final class TaskTotals {
  /** Names of the sums; from {@link #FIRST_OF_METRICS}, in the order of {@link #add(TaskMetrics)}. */
  private static final String[] NAMES = {
    "tasks", "failed", "killed", "speculative", "task_ms", "retried_ms", "scheduler_delay_ms", "getting_result_ms",
    "speculative_won",
    "run_ms", "cpu_ms", "gc_ms", "deserialize_ms", "result_serialize_ms", "result_bytes",
    "input_bytes", "input_rows", "output_bytes", "output_rows",
    "shuffle_read_bytes", "shuffle_read_rows", "fetch_wait_ms",
    "shuffle_write_bytes", "shuffle_write_rows", "shuffle_write_ms",
    "spill_memory_bytes", "spill_disk_bytes", "peak_execution_memory",
  };
  private static final int FIRST_OF_METRICS = 9;
  private static final int PEAK = NAMES.length - 1;
  /** Indices of the sums that Spark measures in nanoseconds. */
  private static final int CPU = 10;
  private static final int SHUFFLE_WRITE = 24;

  private final long[] sums = new long[NAMES.length];
  private final Sketch durations = new Sketch();
  private final Sketch inputs = new Sketch();
  private int slowestTask = -1;
  private int slowestAttempt;
  private String slowestExecutor = "";
  private String slowestHost = "";

  /**
   * Counts a speculative copy when it starts. A copy whose original finishes the stage ends after the stage, and Spark
   * may not report its end.
   */
  void copyStarted() {
    sums[3]++;
  }

  /**
   * Adds an ended attempt.
   *
   * @param metrics null if Spark sends no metrics, for example because the executor was lost
   */
  void add(TaskInfo task, Stages.Outcome outcome, TaskMetrics metrics) {
    long finish = task.finishTime();
    long duration = Math.max(0, finish - task.launchTime());
    sums[0]++;
    sums[4] += duration;
    long input = metrics == null ? 0 : add(metrics);
    if (outcome != Stages.Outcome.SUCCEEDED) {
      sums[outcome == Stages.Outcome.FAILED ? 1 : 2]++;
      sums[5] += duration;
      return;
    }
    sums[8] += task.speculative() ? 1 : 0;
    if (metrics != null) {
      long getting = task.gettingResultTime() > 0 ? finish - task.gettingResultTime() : 0;
      long work = metrics.executorRunTime() + metrics.executorDeserializeTime() + metrics.resultSerializationTime();
      sums[6] += Math.max(0, duration - work - getting);
      sums[7] += getting;
    }
    if (slowestTask < 0 || duration > durations.max()) {
      slowestTask = task.index();
      slowestAttempt = task.attemptNumber();
      slowestExecutor = task.executorId();
      slowestHost = task.host();
    }
    durations.add(duration);
    inputs.add(input);
  }

  /** Adds metrics; returns the number of bytes that the attempt read. */
  private long add(TaskMetrics metrics) {
    ShuffleReadMetrics read = metrics.shuffleReadMetrics();
    ShuffleWriteMetrics write = metrics.shuffleWriteMetrics();
    long input = metrics.inputMetrics().bytesRead();
    long shuffled = read.totalBytesRead();
    int i = FIRST_OF_METRICS;
    sums[i++] += metrics.executorRunTime();
    sums[i++] += metrics.executorCpuTime();
    sums[i++] += metrics.jvmGCTime();
    sums[i++] += metrics.executorDeserializeTime();
    sums[i++] += metrics.resultSerializationTime();
    sums[i++] += metrics.resultSize();
    sums[i++] += input;
    sums[i++] += metrics.inputMetrics().recordsRead();
    sums[i++] += metrics.outputMetrics().bytesWritten();
    sums[i++] += metrics.outputMetrics().recordsWritten();
    sums[i++] += shuffled;
    sums[i++] += read.recordsRead();
    sums[i++] += read.fetchWaitTime();
    sums[i++] += write.bytesWritten();
    sums[i++] += write.recordsWritten();
    sums[i++] += write.writeTime();
    sums[i++] += metrics.memoryBytesSpilled();
    sums[i++] += metrics.diskBytesSpilled();
    sums[i] = Math.max(sums[i], metrics.peakExecutionMemory());
    return input + shuffled;
  }

  /** Adds the sums of a stage attempt. */
  void addAll(TaskTotals other) {
    for (int i = 0; i < PEAK; i++) {
      sums[i] += other.sums[i];
    }
    sums[PEAK] = Math.max(sums[PEAK], other.sums[PEAK]);
  }

  /** Returns the time from launch to finish of all attempts, in milliseconds. */
  long taskMillis() {
    return sums[4];
  }

  Map<String, Object> sums() {
    Map<String, Object> fields = new LinkedHashMap<>();
    for (int i = 0; i < NAMES.length; i++) {
      fields.put(NAMES[i], i == CPU || i == SHUFFLE_WRITE ? sums[i] / 1_000_000 : sums[i]);
    }
    return fields;
  }

  Map<String, Object> ofStage(long started, long ended, long cpus) {
    Map<String, Object> fields = sums();
    fields.put("cpus", cpus);
    fields.put("started", started);
    fields.put("ended", ended);
    fields.put("duration_p50_ms", durations.quantile(50));
    fields.put("duration_p95_ms", durations.quantile(95));
    fields.put("duration_max_ms", durations.max());
    fields.put("slowest_task", slowestTask);
    fields.put("slowest_attempt", slowestAttempt);
    fields.put("slowest_executor", slowestExecutor);
    fields.put("slowest_host", slowestHost);
    fields.put("largest_input_bytes", inputs.max());
    fields.put("median_input_bytes", inputs.quantile(50));
    return fields;
  }
}
