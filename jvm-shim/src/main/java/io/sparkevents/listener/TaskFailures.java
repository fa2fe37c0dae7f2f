package io.sparkevents.listener;

import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.spark.ExceptionFailure;
import org.apache.spark.FetchFailed;
import org.apache.spark.TaskEndReason;
import org.apache.spark.storage.BlockManagerId;

/**
 * Why tasks of a stage attempt failed: to compare with the reason for which Spark fails the stage, because Spark 4 fails
 * every running stage of a job with the message of the one task that failed for good.
 */
public final class TaskFailures {
  /** Exceptions kept; the task that fails a stage is among the last that failed. */
  private static final int REMEMBERED = 16;

  /** Stack traces by the messages of their exceptions. */
  private final Map<String, String> traces = new LinkedHashMap<>();
  /** Whose shuffle output a task could not fetch last; null where none is known. */
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

  /** Returns the executor whose shuffle output a task could not fetch last, or null. */
  public String lostExecutor() {
    return owner == null ? null : owner.executorId();
  }

  public String lostHost() {
    return owner == null ? null : owner.host();
  }
}
