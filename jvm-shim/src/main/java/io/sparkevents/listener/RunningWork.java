package io.sparkevents.listener;

import io.sparkevents.queue.BoundedMap;
import io.sparkevents.queue.Record;
import io.sparkevents.queue.Subject;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.Predicate;
import org.apache.spark.ExecutorLostFailure;
import org.apache.spark.TaskEndReason;
import org.apache.spark.scheduler.SparkListenerExecutorAdded;
import org.apache.spark.scheduler.SparkListenerExecutorRemoved;
import org.apache.spark.scheduler.SparkListenerTaskStart;
import org.apache.spark.scheduler.TaskInfo;

/**
 * Running tasks and executors, for deadlines and for lost executors.
 *
 * <p>Used by the listener thread only. The start or completion of a task costs one access to a hash map.
 */
public final class RunningWork {
  /** Executor id of the driver, which is the only executor of a local application. */
  static final String DRIVER = "driver";
  /** Maximum number of stage attempts in one snapshot; beyond it, the newest attempts are omitted. */
  private static final int MOST_STAGES = 50;
  /**
   * Maximum number of running tasks. Above it, Spark must have dropped the end events of many tasks; the oldest tasks
   * are forgotten.
   */
  private static final int MOST_TASKS = 65_536;

  private static final class Executor {
    final String host;
    final int cores;
    /** Stages of the tasks that Spark reported as lost before it removed the executor, with one entry per task. */
    final List<Integer> lost = new ArrayList<>();

    Executor(String host, int cores) {
      this.host = host;
      this.cores = cores;
    }
  }

  /** The last answer to the sidecar, which contains the reported deadlines. */
  final Subject inspection = new Subject();
  private final Stages stages;
  private final JobProperties properties;
  private final ApplicationTotals totals;
  /** Start events of the running tasks, by task id. */
  private final Map<Long, SparkListenerTaskStart> running = new BoundedMap<>(MOST_TASKS);
  /** Time at which the last running task ended. */
  private long idleSince;
  private final Map<String, Executor> executors = new HashMap<>();

  public RunningWork(Stages stages, JobProperties properties, ApplicationTotals totals) {
    this.totals = totals;
    this.stages = stages;
    this.properties = properties;
  }

  void started(SparkListenerTaskStart event) {
    running.put(event.taskInfo().taskId(), event);
  }

  void ended(int stage, TaskInfo task, TaskEndReason reason) {
    if (running.remove(task.taskId()) == null) {
      return;
    }
    if (running.isEmpty()) {
      idleSince = Math.max(idleSince, task.finishTime());
    }
    Executor executor = reason instanceof ExecutorLostFailure ? executors.get(task.executorId()) : null;
    if (executor != null) {
      executor.lost.add(stage);
    }
  }

  /** Returns the record of a new executor; null for the driver of a local application. */
  public Record executorAdded(SparkListenerExecutorAdded event) {
    String id = event.executorId();
    Executor executor = new Executor(event.executorInfo().executorHost(), event.executorInfo().totalCores());
    long time = event.time();
    executors.put(id, executor);
    totals.cores(cores(), time);
    if (id.equals(DRIVER)) {
      return null;
    }
    return new Record(
        "executor_added",
        Record.Priority.ROUTINE,
        json -> Record.write(json, "executor_id", id, "time", time, "host", executor.host, "cores", executor.cores));
  }

  public Record executorRemoved(SparkListenerExecutorRemoved event) {
    String id = event.executorId();
    stages.executorRemoved(id, event.time());
    Executor known = executors.remove(id);
    totals.cores(cores(), event.time());
    String host = known == null ? null : known.host;
    List<Integer> lost = known == null ? new ArrayList<>() : known.lost;
    Predicate<SparkListenerTaskStart> runsHere = task -> id.equals(task.taskInfo().executorId());
    running.values().stream().filter(runsHere).forEach(task -> lost.add(task.stageId()));
    if (running.values().removeIf(runsHere) && running.isEmpty()) {
      idleSince = Math.max(idleSince, event.time());
    }
    long time = event.time();
    String reason = Text.cut(event.reason());
    return new Record(
        "executor_removed",
        Record.Priority.ROUTINE,
        null,
        json -> {
          Record.write(json, "executor_id", id, "time", time, "reason", reason, "host", host);
          Record.write(json, "tasks", lost.size(), "stages", new TreeSet<>(lost));
        },
        Text.length(reason));
  }

  /**
   * Returns the fields that describe the running stages and executors.
   *
   * @param active ids of the active stages; Spark dropped the events about the end of any other stage
   */
  public Record.Body snapshot(Set<Integer> active) {
    Map<Long, TaskInfo> longest = new HashMap<>();
    for (SparkListenerTaskStart task : running.values()) {
      Long key = Stages.key(task.stageId(), task.stageAttemptId());
      longest.merge(key, task.taskInfo(), (one, other) -> one.launchTime() <= other.launchTime() ? one : other);
    }
    List<Map<String, Object>> rows = new ArrayList<>();
    List<String[]> selected = new ArrayList<>();
    for (StageAttempt attempt : stages.attempts()) {
      if (rows.size() < MOST_STAGES && active.contains(attempt.stageId)) {
        rows.add(row(attempt, longest.get(Stages.key(attempt.stageId, attempt.number))));
        selected.add(attempt.properties);
      }
    }
    long idle = running.isEmpty() ? Math.max(1, idleSince) : 0;
    int known = totals.knowsExecutors() ? executors.size() : -1;
    int cores = cores();
    return json -> {
      // Redact here, because this code runs on the writer thread.
      for (int i = 0; i < rows.size(); i++) {
        rows.get(i).put("properties", properties.redacted(selected.get(i)));
      }
      Record.write(json, "idle_since", idle, "executors", known, "cores", cores, "stages", rows);
    };
  }

  private int cores() {
    return executors.values().stream().mapToInt(executor -> executor.cores).sum();
  }

  private static Map<String, Object> row(StageAttempt attempt, TaskInfo longest) {
    Map<String, Object> row = new LinkedHashMap<>();
    row.put("stage_id", attempt.stageId);
    row.put("attempt", attempt.number);
    row.put("name", attempt.name);
    row.put("tasks", attempt.tasks.count);
    row.put("time", attempt.time);
    row.put("running", attempt.tasks.running());
    row.put("finished", attempt.tasks.finished());
    if (longest != null) {
      Map<String, Object> task = new LinkedHashMap<>();
      task.put("task", longest.index());
      task.put("executor", longest.executorId());
      task.put("host", longest.host());
      task.put("time", longest.launchTime());
      row.put("longest", task);
    }
    return row;
  }
}
