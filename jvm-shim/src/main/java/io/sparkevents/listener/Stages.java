package io.sparkevents.listener;

import io.sparkevents.queue.BoundedMap;
import io.sparkevents.queue.Record;
import java.util.Collection;
import java.util.Map;
import java.util.function.Consumer;
import org.apache.spark.TaskEndReason;

/**
 * Counts the tasks of every stage attempt, and creates a record for each change of an attempt's status.
 *
 * <p>The statuses are those of FLIP-481's AllSubtasksStatusChange, so thousands of task events produce only a few
 * records.
 *
 * <p>If the output of a task is lost with its executor, Spark resubmits the task. Spark reports the resubmission with
 * the time at which the task had finished, not the time of the loss. Therefore the record stays pending until the next
 * event with a suitable time: the executor's removal, or the next start or completion of a task in the attempt. A
 * replay follows the same rule ({@code tasks.py}).
 *
 * <p>Used by the listener thread only. The start or completion of a task costs one access to a hash map.
 */
public final class Stages {
  /** Maximum number of running attempts, exceeded only if Spark dropped the events of their completion. */
  private static final int MOST_ATTEMPTS = 2_000;
  /** Maximum number of removed executors to store. Spark may report a resubmission after the removal. */
  private static final int REMEMBERED_EXECUTORS = 1_024;

  /** Outcome of a task attempt. */
  public enum Outcome {
    SUCCEEDED,
    FAILED,
    /**
     * Spark ended the attempt or rejected its output: another attempt of the task succeeded, or the stage has ended.
     */
    KILLED
  }

  private final Consumer<Record> sink;
  private final Map<Long, StageAttempt> attempts = new BoundedMap<>(MOST_ATTEMPTS);
  private final Map<String, Long> removedExecutors = new BoundedMap<>(REMEMBERED_EXECUTORS);

  /** @param sink receives the records of the changes */
  public Stages(Consumer<Record> sink) {
    this.sink = sink;
  }

  public void submitted(StageAttempt attempt) {
    attempts.put(key(attempt.stageId, attempt.number), attempt);
  }

  /** Handles the start of a task attempt, and returns the stage attempt; null if it is unknown or has ended. */
  public StageAttempt taskStarted(int stageId, int number, int index, long time) {
    StageAttempt attempt = find(stageId, number);
    if (attempt != null && index < attempt.tasks.count) {
      date(attempt, time);
      attempt.tasks.started(index, time);
      record(attempt, time);
    }
    return attempt;
  }

  /**
   * Handles the completion of a task attempt; {@code reason} is used only if the attempt has failed.
   *
   * @return the stage attempt; null if it is unknown or has ended
   */
  public StageAttempt taskEnded(
      int stageId, int number, int index, Outcome outcome, TaskEndReason reason, long launched, long time) {
    StageAttempt attempt = find(stageId, number);
    if (attempt != null && index < attempt.tasks.count) {
      date(attempt, time);
      attempt.tasks.ended(index, outcome, launched);
      if (outcome == Outcome.FAILED) {
        attempt.failures.add(reason);
      }
      record(attempt, time);
    }
    return attempt;
  }

  /** Undoes a finished task whose output was lost with its executor. */
  public void outputLost(int stageId, int number, int index, String executor) {
    StageAttempt attempt = find(stageId, number);
    if (attempt == null || index >= attempt.tasks.count) {
      return;
    }
    attempt.tasks.outputLost(index);
    Long time = removedExecutors.get(executor);
    if (attempt.lostExecutor == null && time == null) {
      attempt.lostExecutor = executor;
    } else if (attempt.lostExecutor == null) {
      record(attempt, time);
    }
  }

  /** Sends the records pending on this executor's removal. */
  public void executorRemoved(String executor, long time) {
    removedExecutors.put(executor, time);
    for (StageAttempt attempt : attempts.values()) {
      if (executor.equals(attempt.lostExecutor)) {
        date(attempt, time);
      }
    }
  }

  /** Removes an attempt and returns it; null if it is unknown. */
  public StageAttempt completed(int stageId, int number, long time) {
    StageAttempt attempt = attempts.remove(key(stageId, number));
    if (attempt != null) {
      date(attempt, time);
    }
    return attempt;
  }

  /** Returns the running attempts, the oldest first. */
  Collection<StageAttempt> attempts() {
    return attempts.values();
  }

  private StageAttempt find(int stageId, int number) {
    return attempts.get(key(stageId, number));
  }

  /** Sends the pending record, if any, with this time. */
  private void date(StageAttempt attempt, long time) {
    if (attempt.lostExecutor != null) {
      attempt.lostExecutor = null;
      record(attempt, time);
    }
  }

  /** Records the attempt's status if it has changed. */
  private void record(StageAttempt attempt, long time) {
    TaskCounts.Status status = attempt.tasks.status();
    if (status == attempt.status) {
      return;
    }
    attempt.status = status;
    if (!attempt.makesRecords) {
      return;
    }
    int running = attempt.tasks.running();
    int finished = attempt.tasks.finished();
    int failed = attempt.tasks.failed();
    sink.accept(new Record("stage_tasks", Record.Priority.ROUTINE, json -> {
      Record.write(json, "stage_id", attempt.stageId, "attempt", attempt.number, "time", time);
      Record.write(json, "status", status.name(), "tasks", attempt.tasks.count);
      Record.write(json, "running", running, "finished", finished, "failed", failed);
    }));
  }

  static Long key(int stageId, int number) {
    return ((long) stageId << 32) | number;
  }
}
