package io.sparkevents.listener;

import io.sparkevents.queue.Record;
import java.util.function.Supplier;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerExecutorExcluded;
import org.apache.spark.scheduler.SparkListenerExecutorExcludedForStage;
import org.apache.spark.scheduler.SparkListenerExecutorUnexcluded;
import org.apache.spark.scheduler.SparkListenerNodeExcluded;
import org.apache.spark.scheduler.SparkListenerNodeExcludedForStage;
import org.apache.spark.scheduler.SparkListenerNodeUnexcluded;
import org.apache.spark.scheduler.SparkListenerUnschedulableTaskSetAdded;
import org.apache.spark.scheduler.SparkListenerUnschedulableTaskSetRemoved;

/**
 * Creates the records of executors and nodes that Spark excludes after failures, and of stages that therefore cannot be
 * scheduled.
 *
 * <p>Spark also posts its older events about a "blacklist", which contain the same facts.
 */
public abstract class ExclusionListener extends SparkListener {
  private static final int APPLICATION = -1;

  /** Reports a record. The supplier may fail. */
  protected abstract void report(Supplier<Record> record);

  @Override
  public void onExecutorExcluded(SparkListenerExecutorExcluded event) {
    report(() -> executor(true, event.time(), event.executorId(), event.taskFailures(), APPLICATION, 0));
  }

  @Override
  public void onExecutorExcludedForStage(SparkListenerExecutorExcludedForStage event) {
    report(
        () ->
            executor(
                true, event.time(), event.executorId(), event.taskFailures(), event.stageId(),
                event.stageAttemptId()));
  }

  @Override
  public void onExecutorUnexcluded(SparkListenerExecutorUnexcluded event) {
    report(() -> executor(false, event.time(), event.executorId(), 0, APPLICATION, 0));
  }

  @Override
  public void onNodeExcluded(SparkListenerNodeExcluded event) {
    report(() -> node(true, event.time(), event.hostId(), event.executorFailures(), APPLICATION, 0));
  }

  @Override
  public void onNodeExcludedForStage(SparkListenerNodeExcludedForStage event) {
    report(
        () ->
            node(
                true, event.time(), event.hostId(), event.executorFailures(), event.stageId(),
                event.stageAttemptId()));
  }

  @Override
  public void onNodeUnexcluded(SparkListenerNodeUnexcluded event) {
    report(() -> node(false, event.time(), event.hostId(), 0, APPLICATION, 0));
  }

  @Override
  public void onUnschedulableTaskSetAdded(SparkListenerUnschedulableTaskSetAdded event) {
    report(() -> unschedulable(true, event.stageId(), event.stageAttemptId()));
  }

  @Override
  public void onUnschedulableTaskSetRemoved(SparkListenerUnschedulableTaskSetRemoved event) {
    report(() -> unschedulable(false, event.stageId(), event.stageAttemptId()));
  }

  private static Record executor(boolean excluded, long time, String id, int failures, int stage, int attempt) {
    return exclusion(excluded, time, "executor_id", id, failures, stage, attempt);
  }

  private static Record node(boolean excluded, long time, String host, int failures, int stage, int attempt) {
    return exclusion(excluded, time, "host", host, failures, stage, attempt);
  }

  private static Record exclusion(
      boolean excluded, long time, String kind, String name, int failures, int stage, int attempt) {
    return new Record(
        "exclusion",
        Record.Priority.ROUTINE,
        json -> {
          Record.write(json, "time", time, "excluded", excluded, kind, name, "failures", failures);
          if (stage != APPLICATION) {
            Record.write(json, "stage_id", stage, "attempt", attempt);
          }
        });
  }

  private static Record unschedulable(boolean added, int stage, int attempt) {
    // Spark's event has no time.
    long time = System.currentTimeMillis();
    return new Record(
        "unschedulable",
        Record.Priority.ROUTINE,
        json -> Record.write(json, "time", time, "unschedulable", added, "stage_id", stage, "attempt", attempt));
  }
}
