package io.sparkevents.listener;

import com.fasterxml.jackson.core.JsonGenerator;
import io.sparkevents.queue.Priority;
import io.sparkevents.queue.Record;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.spark.ExecutorLostFailure;
import org.apache.spark.TaskEndReason;
import org.apache.spark.scheduler.SparkListenerExecutorAdded;
import org.apache.spark.scheduler.SparkListenerExecutorRemoved;
import org.apache.spark.scheduler.TaskInfo;

/**
 * The stage attempts, tasks and executors that exist now, for deadlines and for the losses of executors.
 *
 * <p>Used by the listener thread only. A task start or end costs one access to a hash map.
 */
public final class RunningWork {
  /** The executor of a local application, which is the driver itself. */
  private static final String DRIVER = "driver";
  /** Stage attempts in one snapshot; with more, the newest are left out. */
  private static final int MOST_STAGES = 50;
  /** Beyond it, Spark has dropped the ends of many tasks, and the tasks are forgotten. */
  private static final int MOST_TASKS = 65_536;

  private static final class Task {
    final TaskInfo info;
    final int stage;
    final int attempt;

    Task(TaskInfo info, int stage, int attempt) {
      this.info = info;
      this.stage = stage;
      this.attempt = attempt;
    }
  }

  private static final class Stage {
    final int id;
    final int attempt;
    final String name;
    final int tasks;
    final long time;
    final String[] properties;

    Stage(int id, int attempt, String name, int tasks, long time, String[] properties) {
      this.id = id;
      this.attempt = attempt;
      this.name = name;
      this.tasks = tasks;
      this.time = time;
      this.properties = properties;
    }
  }

  /** Tasks that an executor took along. */
  private static final class Lost {
    int tasks;
    final TreeSet<Integer> stages = new TreeSet<>();

    void add(int stage) {
      tasks++;
      stages.add(stage);
    }
  }

  /** Values of one moment, written later by the writer thread. */
  interface Snapshot {
    void write(JsonGenerator json) throws IOException;
  }

  private final Stages counts;
  private final JobProperties properties;
  private final Map<Long, Stage> stages = new LinkedHashMap<>();
  private final Map<Long, Task> running = new HashMap<>();
  /** When the last running task ended. */
  private long idleSince;
  private final Map<String, String> hosts = new HashMap<>();
  private final Map<String, Integer> cores = new HashMap<>();
  /** Losses that Spark reported before the removal of their executor. */
  private final Map<String, Lost> lost = new HashMap<>();
  private boolean knowsExecutors;

  RunningWork(Stages counts, JobProperties properties) {
    this.counts = counts;
    this.properties = properties;
  }

  void submitted(int id, int attempt, String name, int tasks, long time, String[] selected) {
    stages.put(key(id, attempt), new Stage(id, attempt, name, tasks, time, selected));
  }

  void completed(int id, int attempt) {
    stages.remove(key(id, attempt));
  }

  void started(int stage, int attempt, TaskInfo task) {
    if (running.size() >= MOST_TASKS) {
      running.clear();
    }
    running.put(task.taskId(), new Task(task, stage, attempt));
  }

  void ended(int stage, TaskInfo task, TaskEndReason reason) {
    boolean wasRunning = running.remove(task.taskId()) != null;
    if (wasRunning && running.isEmpty()) {
      idleSince = Math.max(idleSince, task.finishTime());
    }
    if (wasRunning && reason instanceof ExecutorLostFailure && hosts.containsKey(task.executorId())) {
      lost.computeIfAbsent(task.executorId(), id -> new Lost()).add(stage);
    }
  }

  /** Returns the record of a new executor; null for the driver of a local application. */
  Record executorAdded(SparkListenerExecutorAdded event) {
    String id = event.executorId();
    String host = event.executorInfo().executorHost();
    int count = event.executorInfo().totalCores();
    long time = event.time();
    hosts.put(id, host);
    cores.put(id, count);
    if (id.equals(DRIVER)) {
      return null;
    }
    return new Record(
        "executor_added",
        Priority.ROUTINE,
        null,
        json -> {
          json.writeStringField("executor_id", id);
          json.writeNumberField("time", time);
          json.writeStringField("host", host);
          json.writeNumberField("cores", count);
        });
  }

  Record executorRemoved(SparkListenerExecutorRemoved event) {
    String id = event.executorId();
    Lost along = lost.remove(id);
    Lost taken = along == null ? new Lost() : along;
    for (Task task : running.values()) {
      if (id.equals(task.info.executorId())) {
        taken.add(task.stage);
      }
    }
    if (running.values().removeIf(task -> id.equals(task.info.executorId())) && running.isEmpty()) {
      idleSince = Math.max(idleSince, event.time());
    }
    String host = hosts.remove(id);
    cores.remove(id);
    long time = event.time();
    String reason = Text.cut(event.reason());
    return new Record(
        "executor_removed",
        Priority.ROUTINE,
        null,
        json -> {
          json.writeStringField("executor_id", id);
          json.writeNumberField("time", time);
          json.writeStringField("reason", reason);
          json.writeStringField("host", host);
          json.writeNumberField("tasks", taken.tasks);
          json.writeArrayFieldStart("stages");
          for (int stage : taken.stages) {
            json.writeNumber(stage);
          }
          json.writeEndArray();
        });
  }

  /** Notes that the application's start was seen, so that all executors are known. */
  void knowsExecutors() {
    knowsExecutors = true;
  }

  /** Returns what runs now. */
  Snapshot snapshot() {
    Map<Long, Task> longest = new HashMap<>();
    for (Task task : running.values()) {
      longest.merge(
          key(task.stage, task.attempt), task, (a, b) -> a.info.launchTime() <= b.info.launchTime() ? a : b);
    }
    List<Stage> known = new ArrayList<>(stages.values()).subList(0, Math.min(MOST_STAGES, stages.size()));
    List<int[]> numbers = new ArrayList<>();
    for (Stage stage : known) {
      numbers.add(counts.counts(stage.id, stage.attempt));
    }
    long idle = running.isEmpty() ? Math.max(1, idleSince) : 0;
    int executors = knowsExecutors ? hosts.size() : -1;
    int allCores = cores.values().stream().mapToInt(Integer::intValue).sum();
    return json -> {
      json.writeNumberField("idle_since", idle);
      json.writeNumberField("executors", executors);
      json.writeNumberField("cores", allCores);
      json.writeArrayFieldStart("stages");
      for (int i = 0; i < known.size(); i++) {
        Stage stage = known.get(i);
        write(json, stage, numbers.get(i), longest.get(key(stage.id, stage.attempt)));
      }
      json.writeEndArray();
    };
  }

  private void write(JsonGenerator json, Stage stage, int[] numbers, Task longest) throws IOException {
    json.writeStartObject();
    json.writeNumberField("stage_id", stage.id);
    json.writeNumberField("attempt", stage.attempt);
    json.writeStringField("name", stage.name);
    json.writeNumberField("tasks", stage.tasks);
    json.writeNumberField("time", stage.time);
    json.writeNumberField("running", numbers[0]);
    json.writeNumberField("finished", numbers[1]);
    properties.write(json, stage.properties);
    if (longest != null) {
      json.writeObjectFieldStart("longest");
      json.writeNumberField("task", longest.info.index());
      json.writeStringField("executor", longest.info.executorId());
      json.writeStringField("host", longest.info.host());
      json.writeNumberField("time", longest.info.launchTime());
      json.writeEndObject();
    }
    json.writeEndObject();
  }

  private static Long key(int stageId, int number) {
    return ((long) stageId << 32) | number;
  }
}
