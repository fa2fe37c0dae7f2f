package io.sparkevents;

import java.util.BitSet;
import java.util.HashMap;
import java.util.Map;

/**
 * Counts the tasks of every stage attempt, so that thousands of starts and ends become a handful of
 * edges: all tasks run or have finished, no longer so, all have finished (FLIP-481's
 * AllSubtasksStatusChange).
 *
 * <p>Used by the listener's thread alone. A start or an end costs an array access; what is looked up is
 * remembered, because tasks of one stage come in runs.
 */
final class Stages {
  /** Where a stage attempt stands. */
  enum Status {
    NOT_ALL_RUNNING_OR_FINISHED,
    ALL_RUNNING_OR_FINISHED,
    ALL_FINISHED
  }

  /** One attempt of one stage. */
  static final class Attempt {
    final int stageId;
    final int number;
    final int tasks;
    Status status = Status.NOT_ALL_RUNNING_OR_FINISHED;
    int failedTasks;

    /** How many attempts of a task run, by its index: more than one where Spark speculates. */
    private final byte[] running;
    private final BitSet finished = new BitSet();
    private int runningTasks;
    private int finishedTasks;

    private Attempt(int stageId, int number, int tasks) {
      this.stageId = stageId;
      this.number = number;
      this.tasks = tasks;
      this.running = new byte[tasks];
    }

    /** Tasks of which an attempt runs, and that have not finished. */
    int runningTasks() {
      return runningTasks;
    }

    int finishedTasks() {
      return finishedTasks;
    }

    private void started(int index) {
      if (running[index]++ == 0 && !finished.get(index)) {
        runningTasks++;
      }
    }

    private void ended(int index, boolean successful, boolean resubmitted) {
      if (resubmitted) {
        // Its output went with its executor: this is no attempt that ends, but a success that is undone.
        if (finished.get(index)) {
          finished.clear(index);
          finishedTasks--;
          if (running[index] > 0) {
            // A speculative copy still runs, and counts again.
            runningTasks++;
          }
        }
        return;
      }
      if (running[index] > 0 && --running[index] == 0 && !finished.get(index)) {
        runningTasks--;
      }
      if (successful && !finished.get(index)) {
        if (running[index] > 0) {
          runningTasks--;
        }
        finished.set(index);
        finishedTasks++;
      } else if (!successful) {
        failedTasks++;
      }
    }

    /** Whether the status is another one now. */
    private boolean changed() {
      Status now =
          finishedTasks == tasks
              ? Status.ALL_FINISHED
              : runningTasks + finishedTasks == tasks
                  ? Status.ALL_RUNNING_OR_FINISHED
                  : Status.NOT_ALL_RUNNING_OR_FINISHED;
      boolean changed = now != status;
      status = now;
      return changed;
    }
  }

  private final Map<Long, Attempt> attempts = new HashMap<>();
  private Attempt last;

  void submitted(int stageId, int number, int tasks) {
    attempts.put(key(stageId, number), new Attempt(stageId, number, tasks));
  }

  /** Returns the attempt when its status has changed, otherwise null. */
  Attempt taskStarted(int stageId, int number, int index) {
    Attempt attempt = find(stageId, number);
    if (attempt == null || index >= attempt.tasks) {
      return null;
    }
    attempt.started(index);
    return attempt.changed() ? attempt : null;
  }

  /** Returns the attempt when its status has changed, otherwise null. */
  Attempt taskEnded(int stageId, int number, int index, boolean successful, boolean resubmitted) {
    Attempt attempt = find(stageId, number);
    if (attempt == null || index >= attempt.tasks) {
      return null;
    }
    attempt.ended(index, successful, resubmitted);
    return attempt.changed() ? attempt : null;
  }

  /** Returns what is known of the attempt, for the last time; null where nothing is. */
  Attempt completed(int stageId, int number) {
    last = null;
    return attempts.remove(key(stageId, number));
  }

  private Attempt find(int stageId, int number) {
    if (last == null || last.stageId != stageId || last.number != number) {
      last = attempts.get(key(stageId, number));
    }
    return last;
  }

  private static Long key(int stageId, int number) {
    return ((long) stageId << 32) | number;
  }
}
