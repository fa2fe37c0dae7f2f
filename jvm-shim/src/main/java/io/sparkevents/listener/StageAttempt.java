package io.sparkevents.listener;

import io.sparkevents.queue.Subject;

/** One attempt of one stage. Used by the listener thread; the writer thread reads final fields only. */
public final class StageAttempt {
  final int stageId;
  final int number;
  final String name;
  final long time;
  final String[] properties;
  final Subject subject = new Subject();
  public final TaskCounts tasks;
  public final TaskFailures failures = new TaskFailures();
  final TaskTotals totals = new TaskTotals();

  final boolean makesRecords;
  /** The last recorded status. */
  TaskCounts.Status status = TaskCounts.Status.NOT_ALL_RUNNING_OR_FINISHED;
  /** Executor whose output was lost, set while the time of the loss is unknown; null if there is none. */
  String lostExecutor;

  /** @param makesRecords whether to create records for changes of the status; if false, tasks are only counted */
  public StageAttempt(
      int stageId, int number, String name, int tasks, long time, String[] properties, boolean makesRecords) {
    this.stageId = stageId;
    this.number = number;
    this.name = name;
    this.tasks = new TaskCounts(tasks);
    this.time = time;
    this.properties = properties;
    this.makesRecords = makesRecords;
  }
}
