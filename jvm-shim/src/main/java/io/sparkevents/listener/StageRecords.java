package io.sparkevents.listener;

import com.fasterxml.jackson.core.JsonGenerator;
import io.sparkevents.queue.Priority;
import io.sparkevents.queue.Record;
import io.sparkevents.queue.RestoreState;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.spark.Resubmitted$;
import org.apache.spark.SparkConf;
import org.apache.spark.TaskCommitDenied;
import org.apache.spark.TaskEndReason;
import org.apache.spark.TaskKilled;
import org.apache.spark.scheduler.SparkListenerExecutorAdded;
import org.apache.spark.scheduler.SparkListenerExecutorRemoved;
import org.apache.spark.scheduler.SparkListenerStageCompleted;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.scheduler.SparkListenerTaskStart;
import org.apache.spark.scheduler.StageInfo;
import org.apache.spark.scheduler.TaskInfo;
import scala.Option;

/** Makes the records of stage attempts and executors. Tasks are counted, not sent. */
public final class StageRecords {
  /** Spark's default of spark.stage.maxConsecutiveAttempts. */
  private static final int MOST_FAILURES = 4;

  private final Stages stages = new Stages();
  private final RunningWork work;
  private final boolean tracksWork;
  private final JobProperties properties;
  private final int mostFailures;

  /**
   * @param tracksWork whether the running tasks and executors are kept, for deadlines and lost executors
   */
  public StageRecords(SparkConf conf, JobProperties properties, boolean tracksWork) {
    this.tracksWork = tracksWork;
    work = new RunningWork(stages, properties);
    this.properties = properties;
    mostFailures = mostFailures(conf);
  }

  /** Returns how many attempts of a stage may fail in a row. Spark does not mark an attempt as the last one. */
  private static int mostFailures(SparkConf conf) {
    try {
      return conf.getInt("spark.stage.maxConsecutiveAttempts", MOST_FAILURES);
    } catch (IllegalArgumentException refused) {
      // Spark itself is about to reject this value.
      return MOST_FAILURES;
    }
  }

  /**
   * Returns the start record of a stage attempt.
   *
   * @param recordsTasks whether status changes of its tasks are recorded too
   */
  public Record submitted(SparkListenerStageSubmitted event, boolean recordsTasks) {
    StageInfo stage = event.stageInfo();
    // Capture values, not the StageInfo: it holds the stage's details and accumulators.
    int id = stage.stageId();
    int attempt = stage.attemptNumber();
    String name = stage.name();
    int tasks = stage.numTasks();
    stages.submitted(id, attempt, tasks, recordsTasks);
    String[] selected = JobProperties.select(event.properties());
    long time = time(stage.submissionTime());
    if (tracksWork) {
      work.submitted(id, attempt, name, tasks, time, selected);
    }
    return new Record(
        "stage_submitted",
        Priority.ROUTINE,
        RestoreState.Change.begin(subject(id, attempt), RestoreState.Rank.WORK),
        json -> {
          writeStage(json, id, attempt, name, tasks);
          json.writeNumberField("time", time);
          properties.write(json, selected);
        });
  }

  public List<Record> taskStarted(SparkListenerTaskStart event) {
    TaskInfo task = event.taskInfo();
    if (tracksWork) {
      work.started(event.stageId(), event.stageAttemptId(), task);
    }
    return records(stages.taskStarted(event.stageId(), event.stageAttemptId(), task.index(), task.launchTime()));
  }

  public List<Record> taskEnded(SparkListenerTaskEnd event) {
    TaskInfo task = event.taskInfo();
    if (task == null) {
      return Collections.emptyList();
    }
    int stage = event.stageId();
    int attempt = event.stageAttemptId();
    TaskEndReason reason = event.reason();
    if (reason == Resubmitted$.MODULE$) {
      return records(stages.outputLost(stage, attempt, task.index(), task.executorId()));
    }
    if (tracksWork) {
      work.ended(stage, task, reason);
    }
    Stages.Outcome outcome = outcome(task, reason);
    if (outcome == Stages.Outcome.FAILED) {
      stages.taskFailed(stage, attempt, reason);
    }
    return records(stages.taskEnded(stage, attempt, task.index(), outcome, task.finishTime()));
  }

  private static Stages.Outcome outcome(TaskInfo task, TaskEndReason reason) {
    if (task.successful()) {
      return Stages.Outcome.SUCCEEDED;
    }
    return reason instanceof TaskKilled || reason instanceof TaskCommitDenied
        ? Stages.Outcome.KILLED
        : Stages.Outcome.FAILED;
  }

  private static List<Record> records(List<Stages.Edge> edges) {
    if (edges.isEmpty()) {
      return Collections.emptyList();
    }
    List<Record> records = new ArrayList<>();
    for (Stages.Edge edge : edges) {
      records.add(record(edge));
    }
    return records;
  }

  private static Record record(Stages.Edge edge) {
    return new Record(
        "stage_tasks",
        Priority.ROUTINE,
        null,
        json -> {
          json.writeNumberField("stage_id", edge.attempt.stageId);
          json.writeNumberField("attempt", edge.attempt.number);
          json.writeNumberField("time", edge.time);
          json.writeStringField("status", edge.status.name());
          json.writeNumberField("tasks", edge.attempt.tasks);
          json.writeNumberField("running", edge.running);
          json.writeNumberField("finished", edge.finished);
          json.writeNumberField("failed", edge.failed);
        });
  }

  public List<Record> completed(SparkListenerStageCompleted event) {
    StageInfo stage = event.stageInfo();
    int id = stage.stageId();
    int attempt = stage.attemptNumber();
    String name = stage.name();
    int tasks = stage.numTasks();
    long time = time(stage.completionTime());
    work.completed(id, attempt);
    List<Stages.Edge> lost = stages.ending(id, attempt, time);
    Stages.Attempt counted = stages.completed(id, attempt);
    int failed = counted == null ? 0 : counted.failedTasks;
    String reason = stage.failureReason().isDefined() ? stage.failureReason().get() : null;
    TaskFailures failures = reason == null || counted == null ? new TaskFailures() : counted.failures;
    String taskFailure = failures.trace(reason);
    Record completed = new Record(
        "stage_completed",
        reason == null ? Priority.ROUTINE : Priority.LIFECYCLE,
        RestoreState.Change.forget(subject(id, attempt)),
        json -> {
          writeStage(json, id, attempt, name, tasks);
          json.writeNumberField("time", time);
          json.writeNumberField("failed", failed);
          json.writeStringField("failure_reason", Text.cut(reason));
          json.writeStringField("task_failure", taskFailure);
          json.writeStringField("lost_executor", failures.lostExecutor());
          json.writeStringField("lost_host", failures.lostHost());
          json.writeNumberField("most_failures", mostFailures);
        });
    return with(lost, completed);
  }

  public Record executorAdded(SparkListenerExecutorAdded event) {
    return work.executorAdded(event);
  }

  public List<Record> executorRemoved(SparkListenerExecutorRemoved event) {
    return with(stages.executorRemoved(event.executorId(), event.time()), work.executorRemoved(event));
  }

  /** Notes that the listener has seen the application's start, and so all executors. */
  public void knowsExecutors() {
    work.knowsExecutors();
  }

  public Record inspected(Inspection inspection) {
    return inspection.record(work.snapshot());
  }

  private static List<Record> with(List<Stages.Edge> edges, Record last) {
    List<Record> records = new ArrayList<>(records(edges));
    records.add(last);
    return records;
  }

  private static void writeStage(JsonGenerator json, int id, int attempt, String name, int tasks) throws IOException {
    json.writeNumberField("stage_id", id);
    json.writeNumberField("attempt", attempt);
    json.writeStringField("name", name);
    json.writeNumberField("tasks", tasks);
  }

  static String subject(int stageId, int attempt) {
    return "stage:" + stageId + "." + attempt;
  }

  private static long time(Option<Object> millis) {
    return millis.isDefined() ? (Long) millis.get() : System.currentTimeMillis();
  }
}
