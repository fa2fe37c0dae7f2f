package io.sparkevents.listener;

import java.util.BitSet;

/** Numbers of running, finished and failed tasks of a stage attempt. Used by the listener thread only. */
public final class TaskCounts {
  /** Status of the tasks together. */
  enum Status {
    NOT_ALL_RUNNING_OR_FINISHED,
    ALL_RUNNING_OR_FINISHED,
    ALL_FINISHED
  }

  /** Number of tasks of the stage attempt. */
  final int count;
  private int failedAttempts;
  private int runningTasks;
  private int finishedTasks;
  /** Number of running task attempts, and the sum of the attempts' launch times. */
  private int open;
  private long openSince;
  /** Number of running attempts of each task, by the task's index; more than one with speculative execution. */
  private final byte[] attempts;
  private final BitSet finished = new BitSet();

  TaskCounts(int count) {
    this.count = count;
    attempts = new byte[count];
  }

  void started(int index, long launched) {
    open++;
    openSince += launched;
    if (attempts[index]++ == 0 && !finished.get(index)) {
      runningTasks++;
    }
  }

  void ended(int index, Stages.Outcome outcome, long launched) {
    if (attempts[index] > 0) {
      open--;
      openSince -= launched;
    }
    if (attempts[index] > 0 && --attempts[index] == 0 && !finished.get(index)) {
      runningTasks--;
    }
    if (outcome == Stages.Outcome.SUCCEEDED && !finished.get(index)) {
      if (attempts[index] > 0) {
        runningTasks--;
      }
      finished.set(index);
      finishedTasks++;
    } else if (outcome == Stages.Outcome.FAILED) {
      failedAttempts++;
    }
  }

  /** Undoes a success. The resubmission does not count as the completion of a task attempt. */
  void outputLost(int index) {
    if (finished.get(index)) {
      finished.clear(index);
      finishedTasks--;
      if (attempts[index] > 0) {
        // A speculative attempt is still running, so the task counts as running again.
        runningTasks++;
      }
    }
  }

  /** Returns the number of failed task attempts. */
  public int failed() {
    return failedAttempts;
  }

  /** Returns the number of unfinished tasks with a running attempt. */
  int running() {
    return runningTasks;
  }

  int finished() {
    return finishedTasks;
  }

  /** Returns the total running time of the running task attempts, in milliseconds. */
  long openMillis(long time) {
    return Math.max(0, open * time - openSince);
  }

  Status status() {
    if (finishedTasks == count) {
      return Status.ALL_FINISHED;
    }
    return runningTasks + finishedTasks == count ? Status.ALL_RUNNING_OR_FINISHED : Status.NOT_ALL_RUNNING_OR_FINISHED;
  }
}
