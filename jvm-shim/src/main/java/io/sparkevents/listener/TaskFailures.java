package io.sparkevents.listener;

import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.spark.ExceptionFailure;
import org.apache.spark.FetchFailed;
import org.apache.spark.TaskEndReason;
import org.apache.spark.storage.BlockManagerId;

/**
 * Failures of the tasks of a stage attempt, to compare with the failure reason of the stage.
 *
 * <p>Spark 4 fails every running stage of a job with the message of the task that failed, even stages without that
 * task.
 */
public final class TaskFailures {
  /** Limit of kept exceptions; the task that fails a stage is among the last that failed. */
  private static final int REMEMBERED = 16;

  /** Stack traces by exception message. */
  private final Map<String, String> traces = new LinkedHashMap<>();
  /** Owner of the shuffle output that a task last failed to fetch; null if unknown. */
  private BlockManagerId owner;

  void note(TaskEndReason reason) {
    if (reason instanceof ExceptionFailure) {
      ExceptionFailure failure = (ExceptionFailure) reason;
      if (traces.remove(failure.description()) == null && traces.size() == REMEMBERED) {
        traces.remove(traces.keySet().iterator().next());
      }
      traces.put(failure.description(), Text.cut(failure.fullStackTrace()));
    } else if (reason instanceof FetchFailed && ((FetchFailed) reason).bmAddress() != null) {
      owner = ((FetchFailed) reason).bmAddress();
    }
  }

  /** Returns the stack trace of a task that failed with this message, or null. */
  public String trace(String message) {
    return traces.get(message);
  }

  /** Returns the executor whose shuffle output a task last failed to fetch, or null. */
  public String lostExecutor() {
    return owner == null ? null : owner.executorId();
  }

  public String lostHost() {
    return owner == null ? null : owner.host();
  }
}
