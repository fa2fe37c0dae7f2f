package io.sparkevents;

import com.fasterxml.jackson.core.JsonGenerator;
import java.io.IOException;
import org.apache.spark.Resubmitted$;
import org.apache.spark.scheduler.SparkListenerExecutorRemoved;
import org.apache.spark.scheduler.SparkListenerStageCompleted;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.scheduler.SparkListenerTaskStart;
import org.apache.spark.scheduler.StageInfo;
import org.apache.spark.scheduler.TaskInfo;
import scala.Option;

/** Records of stage attempts and executors; tasks are counted, never sent. */
final class StageRecords {
  private final Stages stages = new Stages();
  private final JobProperties properties;

  StageRecords(JobProperties properties) {
    this.properties = properties;
  }

  Record submitted(SparkListenerStageSubmitted event) {
    StageInfo stage = event.stageInfo();
    stages.submitted(stage.stageId(), stage.attemptNumber(), stage.numTasks());
    String[] selected = JobProperties.select(event.properties());
    long time = time(stage.submissionTime());
    return new Record(
        "stage_submitted",
        Record.Worth.ROUTINE,
        Context.Change.begin(subject(stage), Context.Rank.WORK),
        json -> {
          writeStage(json, stage);
          json.writeNumberField("time", time);
          properties.write(json, selected);
        });
  }

  Record taskStarted(SparkListenerTaskStart event) {
    TaskInfo task = event.taskInfo();
    Stages.Attempt changed = stages.taskStarted(event.stageId(), event.stageAttemptId(), task.index());
    return changed == null ? null : tasks(changed, task.launchTime());
  }

  Record taskEnded(SparkListenerTaskEnd event) {
    TaskInfo task = event.taskInfo();
    if (task == null) {
      return null;
    }
    boolean resubmitted = event.reason() == Resubmitted$.MODULE$;
    Stages.Attempt changed =
        stages.taskEnded(
            event.stageId(), event.stageAttemptId(), task.index(), task.successful(), resubmitted);
    return changed == null ? null : tasks(changed, task.finishTime());
  }

  private static Record tasks(Stages.Attempt attempt, long time) {
    String status = attempt.status.name();
    int running = attempt.runningTasks();
    int finished = attempt.finishedTasks();
    int failed = attempt.failedTasks;
    return new Record(
        "stage_tasks",
        Record.Worth.ROUTINE,
        null,
        json -> {
          json.writeNumberField("stage_id", attempt.stageId);
          json.writeNumberField("attempt", attempt.number);
          json.writeNumberField("time", time);
          json.writeStringField("status", status);
          json.writeNumberField("tasks", attempt.tasks);
          json.writeNumberField("running", running);
          json.writeNumberField("finished", finished);
          json.writeNumberField("failed", failed);
        });
  }

  Record completed(SparkListenerStageCompleted event) {
    StageInfo stage = event.stageInfo();
    Stages.Attempt attempt = stages.completed(stage.stageId(), stage.attemptNumber());
    int failed = attempt == null ? 0 : attempt.failedTasks;
    long time = time(stage.completionTime());
    String reason = stage.failureReason().isDefined() ? stage.failureReason().get() : null;
    return new Record(
        "stage_completed",
        reason == null ? Record.Worth.ROUTINE : Record.Worth.LIFECYCLE,
        Context.Change.forget(subject(stage)),
        json -> {
          writeStage(json, stage);
          json.writeNumberField("time", time);
          json.writeNumberField("failed", failed);
          json.writeStringField("failure_reason", Text.cut(reason));
        });
  }

  Record executorRemoved(SparkListenerExecutorRemoved event) {
    return new Record(
        "executor_removed",
        Record.Worth.ROUTINE,
        null,
        json -> {
          json.writeStringField("executor_id", event.executorId());
          json.writeNumberField("time", event.time());
          json.writeStringField("reason", Text.cut(event.reason()));
        });
  }

  private static void writeStage(JsonGenerator json, StageInfo stage) throws IOException {
    json.writeNumberField("stage_id", stage.stageId());
    json.writeNumberField("attempt", stage.attemptNumber());
    json.writeStringField("name", stage.name());
    json.writeNumberField("tasks", stage.numTasks());
  }

  private static String subject(StageInfo stage) {
    return "stage:" + stage.stageId() + "." + stage.attemptNumber();
  }

  private static long time(Option<Object> millis) {
    return millis.isDefined() ? (Long) millis.get() : System.currentTimeMillis();
  }
}
