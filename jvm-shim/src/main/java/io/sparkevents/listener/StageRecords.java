package io.sparkevents.listener;

import io.sparkevents.queue.Record;
import java.util.Map;
import org.apache.spark.Resubmitted$;
import org.apache.spark.SparkConf;
import org.apache.spark.TaskCommitDenied;
import org.apache.spark.TaskEndReason;
import org.apache.spark.TaskKilled;
import org.apache.spark.scheduler.SparkListenerStageCompleted;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.scheduler.SparkListenerTaskStart;
import org.apache.spark.scheduler.StageInfo;
import org.apache.spark.scheduler.TaskInfo;
import scala.Option;

/** Creates the records of stage attempts. Tasks are only counted and have no records. */
public final class StageRecords {
  private final Stages stages;
  private final RunningWork work;
  private final ApplicationTotals totals;
  private final JobProperties properties;
  /** Number of consecutive failed attempts after which Spark aborts a stage; Spark does not mark the last attempt. */
  private final int mostFailures;

  public StageRecords(
      SparkConf conf, JobProperties properties, ApplicationTotals totals, Stages stages, RunningWork work) {
    this.totals = totals;
    this.properties = properties;
    this.stages = stages;
    this.work = work;
    mostFailures = ApplicationRecords.number(conf, "spark.stage.maxConsecutiveAttempts", 4);
  }

  /**
   * Returns the start record of a stage attempt.
   *
   * @param recordsTasks whether status changes of the attempt's tasks are recorded too
   */
  public Record submitted(SparkListenerStageSubmitted event, boolean recordsTasks) {
    StageInfo stage = event.stageInfo();
    // Capture values instead of the StageInfo, which references the stage's details and accumulators.
    int id = stage.stageId();
    int number = stage.attemptNumber();
    String name = Text.beginning(stage.name());
    int tasks = stage.numTasks();
    long time = time(stage.submissionTime());
    String[] selected = JobProperties.select(event.properties());
    StageAttempt attempt = new StageAttempt(id, number, name, tasks, time, selected, recordsTasks);
    stages.submitted(attempt);
    return new Record(
        "stage_submitted",
        Record.Priority.ROUTINE,
        Record.Change.keep(attempt.subject, Record.Rank.WORK),
        json -> {
          Record.write(json, "stage_id", id, "attempt", number, "name", name, "tasks", tasks);
          Record.write(json, "time", time, "properties", properties.redacted(selected));
        },
        Text.length(name) + Text.length(selected));
  }

  public void taskStarted(SparkListenerTaskStart event) {
    TaskInfo task = event.taskInfo();
    work.started(event);
    StageAttempt attempt =
        stages.taskStarted(event.stageId(), event.stageAttemptId(), task.index(), task.launchTime());
    if (task.speculative()) {
      (attempt == null ? totals.ended() : attempt.totals).copyStarted();
    }
  }

  public void taskEnded(SparkListenerTaskEnd event) {
    TaskInfo task = event.taskInfo();
    if (task == null) {
      return;
    }
    int stage = event.stageId();
    int number = event.stageAttemptId();
    TaskEndReason reason = event.reason();
    if (reason == Resubmitted$.MODULE$) {
      stages.outputLost(stage, number, task.index(), task.executorId());
      return;
    }
    work.ended(stage, task, reason);
    Stages.Outcome outcome = outcome(task, reason);
    StageAttempt attempt =
        stages.taskEnded(stage, number, task.index(), outcome, reason, task.launchTime(), task.finishTime());
    (attempt == null ? totals.ended() : attempt.totals).add(task, outcome, event.taskMetrics());
    totals.peaks(task.executorId(), event.taskExecutorMetrics());
    totals.taskFailed(task.executorId(), reason);
  }

  private static Stages.Outcome outcome(TaskInfo task, TaskEndReason reason) {
    if (task.successful()) {
      return Stages.Outcome.SUCCEEDED;
    }
    boolean isKilled = reason instanceof TaskKilled || reason instanceof TaskCommitDenied;
    return isKilled ? Stages.Outcome.KILLED : Stages.Outcome.FAILED;
  }

  public Record completed(SparkListenerStageCompleted event) {
    StageInfo stage = event.stageInfo();
    int id = stage.stageId();
    int number = stage.attemptNumber();
    String name = Text.beginning(stage.name());
    int tasks = stage.numTasks();
    long time = time(stage.completionTime());
    String reason = ApplicationRecords.orNull(stage.failureReason());
    String shownReason = Text.cut(reason);
    StageAttempt attempt = stages.completed(id, number, time);
    boolean hasEvidence = attempt != null && reason != null;
    int failed = attempt == null ? 0 : attempt.tasks.failed();
    TaskTotals tasksEnded = attempt == null ? null : attempt.totals;
    long started = stage.submissionTime().isDefined() ? (Long) stage.submissionTime().get() : 0;
    totals.stageEnded(tasksEnded, reason);
    Map<String, Object> peaks = reason == null ? null : totals.peaks(reason);
    String trace = hasEvidence ? attempt.failures.trace(reason) : null;
    String executor = hasEvidence ? attempt.failures.lostExecutor() : null;
    String host = hasEvidence ? attempt.failures.lostHost() : null;
    return new Record(
        "stage_completed",
        reason == null ? Record.Priority.ROUTINE : Record.Priority.LIFECYCLE,
        attempt == null ? null : Record.Change.forget(attempt.subject),
        json -> {
          Record.write(json, "stage_id", id, "attempt", number, "name", name, "tasks", tasks);
          Record.write(json, "time", time, "failed", failed, "most_failures", mostFailures);
          Record.write(json, "failure_reason", shownReason, "task_failure", trace);
          Record.write(json, "lost_executor", executor, "lost_host", host, "peaks", peaks);
          Record.write(json, "totals", tasksEnded == null ? null : tasksEnded.ofStage(started, time, totals.cpus()));
        },
        Text.length(name, shownReason, trace, executor, host));
  }

  /** Returns a time from Spark; the current time if Spark reports none. */
  public static long time(Option<Object> millis) {
    return millis.isDefined() ? (Long) millis.get() : System.currentTimeMillis();
  }
}
