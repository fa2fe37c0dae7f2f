package io.sparkevents.listener;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.TaskEndReason;

/**
 * Counts the tasks of every stage attempt and makes edges, the changes of an attempt's status.
 *
 * <p>The statuses are those of FLIP-481's AllSubtasksStatusChange, so that thousands of task starts and ends become a
 * handful of edges.
 *
 * <p>Spark resubmits a task whose output was lost with its executor, and reports this with the time at which the task
 * had finished. So the edge waits for an event that has the time of the loss: the executor's removal, or the next start
 * or end of a task of the attempt, whichever is first. A replay follows the same rule ({@code tasks.py}).
 *
 * <p>Used by the listener thread only. A task start or end costs an array access, because the last attempt is cached:
 * tasks of one stage arrive in runs.
 */
public final class Stages {
  /** Maximum number of removed executors kept for resubmissions that Spark reports after the removal. */
  private static final int REMEMBERED_EXECUTORS = 1_024;

  /** Status of a stage attempt. */
  enum Status {
    NOT_ALL_RUNNING_OR_FINISHED,
    ALL_RUNNING_OR_FINISHED,
    ALL_FINISHED
  }

  /** Outcome of a task attempt. */
  public enum Outcome {
    SUCCEEDED,
    FAILED,
    /** Spark ended it or rejected its output, because another attempt of the task won or the stage is over. */
    KILLED
  }

  /** Change of a stage attempt's status, with its counts at that moment. */
  public static final class Edge {
    final Attempt attempt;
    public final Status status;
    public final long time;
    public final int running;
    public final int finished;
    final int failed;

    private Edge(Attempt attempt, long time) {
      this.attempt = attempt;
      this.status = attempt.status;
      this.time = time;
      this.running = attempt.runningTasks;
      this.finished = attempt.finishedTasks;
      this.failed = attempt.failedTasks;
    }
  }

  /** One attempt of one stage. */
  public static final class Attempt {
    final int stageId;
    final int number;
    final int tasks;
    public final TaskFailures failures = new TaskFailures();
    public int failedTasks;

    private Status status = Status.NOT_ALL_RUNNING_OR_FINISHED;
    /** Number of running attempts of each task, by its index; more than one if Spark speculates. */
    private final byte[] running;
    private final BitSet finished = new BitSet();
    /** Unfinished tasks with a running attempt. */
    private int runningTasks;
    private int finishedTasks;
    /** Executor whose lost output changed the counts at a time that is unknown so far; null if there is none. */
    private String lostExecutor;

    private final boolean makesEdges;

    private Attempt(int stageId, int number, int tasks, boolean makesEdges) {
      this.makesEdges = makesEdges;
      this.stageId = stageId;
      this.number = number;
      this.tasks = tasks;
      this.running = new byte[tasks];
    }

    private void started(int index) {
      if (running[index]++ == 0 && !finished.get(index)) {
        runningTasks++;
      }
    }

    /** Reverts a success; the resubmission itself does not end a task attempt. */
    private void outputLost(int index) {
      if (finished.get(index)) {
        finished.clear(index);
        finishedTasks--;
        if (running[index] > 0) {
          // A speculative copy is still running and counts again.
          runningTasks++;
        }
      }
    }

    private void ended(int index, Outcome outcome) {
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

    /** Returns the edge if the status has changed, otherwise null. */
    private Edge edge(long time) {
      Status now =
          finishedTasks == tasks
              ? Status.ALL_FINISHED
              : runningTasks + finishedTasks == tasks
                  ? Status.ALL_RUNNING_OR_FINISHED
                  : Status.NOT_ALL_RUNNING_OR_FINISHED;
      boolean isSame = now == status;
      status = now;
      return isSame || !makesEdges ? null : new Edge(this, time);
    }

    /** Returns the edge that waited for its time, with this time; null if none waits. */
    private Edge date(long time) {
      if (lostExecutor == null) {
        return null;
      }
      lostExecutor = null;
      return edge(time);
    }
  }

  private final Map<Long, Attempt> attempts = new HashMap<>();
  private final Map<String, Long> removedExecutors =
      new LinkedHashMap<String, Long>() {
        @Override
        protected boolean removeEldestEntry(Map.Entry<String, Long> eldest) {
          return size() > REMEMBERED_EXECUTORS;
        }
      };
  private Attempt last;

  /** Adds an attempt; if it makes no edges, its tasks are only counted. */
  public void submitted(int stageId, int number, int tasks, boolean makesEdges) {
    attempts.put(key(stageId, number), new Attempt(stageId, number, tasks, makesEdges));
  }

  /** Returns the edges of a task's start, usually none. */
  public List<Edge> taskStarted(int stageId, int number, int index, long time) {
    Attempt attempt = find(stageId, number);
    if (attempt == null || index >= attempt.tasks) {
      return Collections.emptyList();
    }
    Edge lost = attempt.date(time);
    attempt.started(index);
    return edges(lost, attempt.edge(time));
  }

  /** Returns the edges of a task attempt's end, usually none. */
  public List<Edge> taskEnded(int stageId, int number, int index, Outcome outcome, long time) {
    Attempt attempt = find(stageId, number);
    if (attempt == null || index >= attempt.tasks) {
      return Collections.emptyList();
    }
    Edge lost = attempt.date(time);
    attempt.ended(index, outcome);
    return edges(lost, attempt.edge(time));
  }

  /** Notes the failure of a task attempt. */
  public void taskFailed(int stageId, int number, TaskEndReason reason) {
    Attempt attempt = find(stageId, number);
    if (attempt != null) {
      attempt.failures.note(reason);
    }
  }

  /**
   * Reverts a finished task whose output was lost with its executor; returns the edge if the time of the loss is known.
   */
  public List<Edge> outputLost(int stageId, int number, int index, String executor) {
    Attempt attempt = find(stageId, number);
    if (attempt == null || index >= attempt.tasks) {
      return Collections.emptyList();
    }
    attempt.outputLost(index);
    if (attempt.lostExecutor == null) {
      Long time = removedExecutors.get(executor);
      if (time != null) {
        return edges(null, attempt.edge(time));
      }
      attempt.lostExecutor = executor;
    }
    return Collections.emptyList();
  }

  /** Returns the edges that waited for the removal of this executor. */
  public List<Edge> executorRemoved(String executor, long time) {
    removedExecutors.put(executor, time);
    List<Edge> edges = new ArrayList<>();
    for (Attempt attempt : attempts.values()) {
      if (executor.equals(attempt.lostExecutor)) {
        Edge lost = attempt.date(time);
        if (lost != null) {
          edges.add(lost);
        }
      }
    }
    return edges;
  }

  /** Returns the edge that still waits for its time when the attempt ends. */
  public List<Edge> ending(int stageId, int number, long time) {
    Attempt attempt = find(stageId, number);
    return edges(null, attempt == null ? null : attempt.date(time));
  }

  private static List<Edge> edges(Edge lost, Edge own) {
    if (lost == null) {
      return own == null ? Collections.emptyList() : Collections.singletonList(own);
    }
    return own == null ? Collections.singletonList(lost) : Arrays.asList(lost, own);
  }

  /** Returns the numbers of running and of finished tasks. */
  int[] counts(int stageId, int number) {
    Attempt attempt = attempts.get(key(stageId, number));
    return attempt == null ? new int[2] : new int[] {attempt.runningTasks, attempt.finishedTasks};
  }

  /** Removes the attempt and returns its counts; null if it is unknown. */
  public Attempt completed(int stageId, int number) {
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
