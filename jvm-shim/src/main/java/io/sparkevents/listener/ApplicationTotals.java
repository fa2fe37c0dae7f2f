package io.sparkevents.listener;

import io.sparkevents.queue.Record;
import java.util.Map;
import org.apache.spark.SparkConf;
import org.apache.spark.TaskEndReason;
import org.apache.spark.executor.ExecutorMetrics;

/**
 * Cumulative totals of the application: {@code ApplicationTotals} in {@code records.py}.
 *
 * <p>The shim computes the totals, so they include micro-batches and survive a restart of the sidecar. All times are
 * taken from Spark's events, so a replay computes the same totals. Used by the listener thread only.
 */
public final class ApplicationTotals {
  private final long interval;
  private final Stages stages;
  private final long cpus;
  /** Sums of ended stage attempts, and of tasks that ended after their stage. */
  private final TaskTotals ended = new TaskTotals();
  private final EndedWork jobs = new EndedWork();
  private final EndedWork stageAttempts = new EndedWork();
  private long cores;
  private long coreMillis;
  private long coresSince;
  private boolean knowsExecutors;
  private final MemoryPeaks memory = new MemoryPeaks();
  private long lastRecord;

  /**
   * @param interval minimum time between two records, in milliseconds; 0 for no record before the application ends
   */
  public ApplicationTotals(SparkConf conf, long interval, Stages stages) {
    this.interval = interval;
    this.stages = stages;
    cpus = ApplicationRecords.number(conf, "spark.task.cpus", 1);
  }

  /** Begins the first interval. From now on, all executors are known, because Spark adds executors only later. */
  public void started(long time) {
    lastRecord = time;
    knowsExecutors = true;
  }

  /** @param failure message of the job's exception; null if the job succeeded */
  public void jobEnded(String failure) {
    jobs.add(failure);
  }

  /**
   * Counts an ended stage attempt.
   *
   * @param tasks null if the attempt is unknown: it began before the listener was added, or Spark repeats the
   *     completion of a barrier stage
   * @param failure reason of the failure; null if the attempt succeeded
   */
  void stageEnded(TaskTotals tasks, String failure) {
    if (tasks != null) {
      stageAttempts.add(failure);
      ended.addAll(tasks);
    }
  }

  /** Returns {@code spark.task.cpus}. */
  long cpus() {
    return cpus;
  }

  /** Returns the totals of tasks whose stage is unknown or has ended. */
  TaskTotals ended() {
    return ended;
  }

  /** Sets the number of executor cores, valid from this time on. */
  void cores(long now, long time) {
    coreMillis = coreMillis(time);
    coresSince = Math.max(coresSince, time);
    cores = now;
  }

  private long coreMillis(long time) {
    return coreMillis + cores * Math.max(0, time - coresSince);
  }

  /** Remembers the executor of a failed task. */
  void taskFailed(String executor, TaskEndReason reason) {
    memory.failed(executor, reason);
  }

  /** Includes the memory peaks of an executor; {@code metrics} may be null. */
  public void peaks(String executor, ExecutorMetrics metrics) {
    memory.add(executor, metrics);
  }

  /** Returns the fields of {@code MemoryPeaks} in {@code records/types.py}, for the record of a failure. */
  public Map<String, Object> peaks(String failure) {
    return memory.of(failure);
  }

  /** Returns whether the application's start was observed, which means that all executors are known. */
  boolean knowsExecutors() {
    return knowsExecutors;
  }

  /** Returns the record if the interval has passed, and begins the next interval; otherwise returns null. */
  public Record recordIfDue(long time) {
    if (interval == 0 || time - lastRecord < interval) {
      return null;
    }
    boolean isFirst = lastRecord == 0;
    lastRecord = time;
    return isFirst ? null : record(time, false);
  }

  /** @param isFinal whether the application has ended */
  public Record record(long time, boolean isFinal) {
    TaskTotals all = new TaskTotals();
    all.addAll(ended);
    long open = 0;
    for (StageAttempt attempt : stages.attempts()) {
      all.addAll(attempt.totals);
      open += attempt.tasks.openMillis(time);
    }
    Map<String, Object> sums = all.sums();
    long available = knowsExecutors ? coreMillis(time) : 0;
    long[] counts = {jobs.all, jobs.failed, jobs.cancelled, stageAttempts.all, stageAttempts.failed};
    long stagesCancelled = stageAttempts.cancelled;
    long coresNow = available > 0 ? cores : 0;
    long spent = (all.taskMillis() + open) * cpus;
    // If Spark dropped the end of a task, the task counts as running.
    long busy = available > 0 ? Math.min(spent, available) : spent;
    long[] driver = memory.driver();
    long[] executors = memory.anyExecutor();
    Record.Priority priority = isFinal ? Record.Priority.LIFECYCLE : Record.Priority.ROUTINE;
    return new Record("application_totals", priority, json -> {
      Record.write(json, "time", time, "final", isFinal, "jobs", counts[0], "jobs_failed", counts[1]);
      Record.write(json, "jobs_cancelled", counts[2], "stages", counts[3], "stages_failed", counts[4]);
      Record.write(json, "stages_cancelled", stagesCancelled, "totals", sums);
      Record.write(json, "busy_ms", busy, "core_ms", available, "cores_now", coresNow);
      Record.write(json, "peak_driver_heap_bytes", driver[0], "peak_executor_heap_bytes", executors[0]);
      Record.write(json, "peak_driver_offheap_bytes", driver[1], "peak_executor_offheap_bytes", executors[1]);
      Record.write(json, "peak_driver_python_bytes", driver[2], "peak_executor_python_bytes", executors[2]);
    });
  }
}
