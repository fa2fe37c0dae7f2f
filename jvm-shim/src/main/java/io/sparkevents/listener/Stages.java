package io.sparkevents.listener;

import io.sparkevents.queue.BoundedMap;
import io.sparkevents.queue.Record;
import io.sparkevents.queue.Subject;
import java.util.BitSet;
import java.util.Collection;
import java.util.Map;
import java.util.function.Consumer;
import org.apache.spark.ExceptionFailure;
import org.apache.spark.FetchFailed;
import org.apache.spark.TaskEndReason;
import org.apache.spark.storage.BlockManagerId;

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
  /** Maximum number of stored exceptions per attempt. The exception that fails a stage is among the last ones. */
  private static final int REMEMBERED_FAILURES = 16;

  /** Status of a stage attempt. */
  private enum Status {
    NOT_ALL_RUNNING_OR_FINISHED,
    ALL_RUNNING_OR_FINISHED,
    ALL_FINISHED
  }

  /** Outcome of a task attempt. */
  public enum Outcome {
    SUCCEEDED,
    FAILED,
    /**
     * Spark ended the attempt or rejected its output: another attempt of the task succeeded, or the stage has ended.
     */
    KILLED
  }

  /** One attempt of one stage. */
  public static final class Attempt {
    final int stageId;
    final int number;
    final String name;
    final int tasks;
    final long time;
    final String[] properties;
    final Subject subject = new Subject();
    final TaskTotals totals = new TaskTotals();
    public int failedTasks;
    /** Unfinished tasks with a running attempt. */
    int runningTasks;
    int finishedTasks;
    /** Number of running task attempts, and the sum of the attempts' launch times. */
    private int open;
    private long openSince;

    private final boolean makesRecords;
    private Status status = Status.NOT_ALL_RUNNING_OR_FINISHED;
    /** Number of running attempts of each task, by the task's index; more than one with speculative execution. */
    private final byte[] running;
    private final BitSet finished = new BitSet();
    /** Executor whose output was lost, set while the time of the loss is unknown; null if there is none. */
    private String lostExecutor;
    /** Stack traces by exception message. */
    private final Map<String, String> traces = new BoundedMap<>(REMEMBERED_FAILURES);
    /** Executor that stored the shuffle output that a task most recently failed to fetch; null if unknown. */
    private BlockManagerId owner;

    /** @param makesRecords whether to create records for changes of the status; if false, tasks are only counted */
    public Attempt(
        int stageId, int number, String name, int tasks, long time, String[] properties, boolean makesRecords) {
      this.stageId = stageId;
      this.number = number;
      this.name = name;
      this.tasks = tasks;
      this.time = time;
      this.properties = properties;
      this.makesRecords = makesRecords;
      this.running = new byte[tasks];
    }

    private void started(int index, long launched) {
      open++;
      openSince += launched;
      if (running[index]++ == 0 && !finished.get(index)) {
        runningTasks++;
      }
    }

    /** Undoes a success. The resubmission does not count as the completion of a task attempt. */
    private void outputLost(int index) {
      if (finished.get(index)) {
        finished.clear(index);
        finishedTasks--;
        if (running[index] > 0) {
          // A speculative attempt is still running, so the task counts as running again.
          runningTasks++;
        }
      }
    }

    /** Returns the total running time of the running task attempts, in milliseconds. */
    long openMillis(long time) {
      return Math.max(0, open * time - openSince);
    }

    private void ended(int index, Outcome outcome, long launched) {
      if (running[index] > 0) {
        open--;
        openSince -= launched;
      }
      if (running[index] > 0 && --running[index] == 0 && !finished.get(index)) {
        runningTasks--;
      }
      if (outcome == Outcome.SUCCEEDED && !finished.get(index)) {
        if (running[index] > 0) {
          runningTasks--;
        }
        finished.set(index);
        finishedTasks++;
      } else if (outcome == Outcome.FAILED) {
        failedTasks++;
      }
    }

    /**
     * Stores a task's failure, to compare it with the failure reason of the stage. Spark 4 fails every running stage of
     * a job with the message of the task that failed, even stages without that task.
     */
    private void note(TaskEndReason reason) {
      if (reason instanceof ExceptionFailure) {
        ExceptionFailure failure = (ExceptionFailure) reason;
        traces.remove(failure.description());
        traces.put(failure.description(), Text.cut(failure.fullStackTrace()));
      } else if (reason instanceof FetchFailed && ((FetchFailed) reason).bmAddress() != null) {
        owner = ((FetchFailed) reason).bmAddress();
      }
    }

    /** Returns the stack trace of a task that failed with this message, or null. */
    public String trace(String message) {
      return traces.get(message);
    }

    /** Returns the executor whose shuffle output a task most recently failed to fetch, or null. */
    public String lostExecutor() {
      return owner == null ? null : owner.executorId();
    }

    public String lostHost() {
      return owner == null ? null : owner.host();
    }

    private Status status() {
      if (finishedTasks == tasks) {
        return Status.ALL_FINISHED;
      }
      return runningTasks + finishedTasks == tasks ? Status.ALL_RUNNING_OR_FINISHED : Status.NOT_ALL_RUNNING_OR_FINISHED;
    }
  }

  private final Consumer<Record> sink;
  private final Map<Long, Attempt> attempts = new BoundedMap<>(MOST_ATTEMPTS);
  private final Map<String, Long> removedExecutors = new BoundedMap<>(REMEMBERED_EXECUTORS);

  /** @param sink receives the records of the changes */
  public Stages(Consumer<Record> sink) {
    this.sink = sink;
  }

  public void submitted(Attempt attempt) {
    attempts.put(key(attempt.stageId, attempt.number), attempt);
  }

  public void taskStarted(int stageId, int number, int index, long time) {
    Attempt attempt = find(stageId, number);
    if (attempt != null && index < attempt.tasks) {
      date(attempt, time);
      attempt.started(index, time);
      record(attempt, time);
    }
  }

  /**
   * Handles the completion of a task attempt; {@code reason} is used only if the attempt has failed.
   *
   * @return the stage attempt; null if it is unknown or has ended
   */
  public Attempt taskEnded(
      int stageId, int number, int index, Outcome outcome, TaskEndReason reason, long launched, long time) {
    Attempt attempt = find(stageId, number);
    if (attempt != null && index < attempt.tasks) {
      date(attempt, time);
      attempt.ended(index, outcome, launched);
      if (outcome == Outcome.FAILED) {
        attempt.note(reason);
      }
      record(attempt, time);
    }
    return attempt;
  }

  /** Undoes a finished task whose output was lost with its executor. */
  public void outputLost(int stageId, int number, int index, String executor) {
    Attempt attempt = find(stageId, number);
    if (attempt == null || index >= attempt.tasks) {
      return;
    }
    attempt.outputLost(index);
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
    for (Attempt attempt : attempts.values()) {
      if (executor.equals(attempt.lostExecutor)) {
        date(attempt, time);
      }
    }
  }

  /** Removes an attempt and returns it; null if it is unknown. */
  public Attempt completed(int stageId, int number, long time) {
    Attempt attempt = attempts.remove(key(stageId, number));
    if (attempt != null) {
      date(attempt, time);
    }
    return attempt;
  }

  /** Returns the running attempts, the oldest first. */
  Collection<Attempt> attempts() {
    return attempts.values();
  }

  private Attempt find(int stageId, int number) {
    return attempts.get(key(stageId, number));
  }

  /** Sends the pending record, if any, with this time. */
  private void date(Attempt attempt, long time) {
    if (attempt.lostExecutor != null) {
      attempt.lostExecutor = null;
      record(attempt, time);
    }
  }

  /** Records the attempt's status if it has changed. */
  private void record(Attempt attempt, long time) {
    Status status = attempt.status();
    if (status == attempt.status) {
      return;
    }
    attempt.status = status;
    if (!attempt.makesRecords) {
      return;
    }
    int running = attempt.runningTasks;
    int finished = attempt.finishedTasks;
    int failed = attempt.failedTasks;
    sink.accept(new Record("stage_tasks", Record.Priority.ROUTINE, json -> {
      Record.write(json, "stage_id", attempt.stageId, "attempt", attempt.number, "time", time);
      Record.write(json, "status", status.name(), "tasks", attempt.tasks);
      Record.write(json, "running", running, "finished", finished, "failed", failed);
    }));
  }

  static Long key(int stageId, int number) {
    return ((long) stageId << 32) | number;
  }
}
