package io.sparkevents.listener;

import io.sparkevents.queue.BoundedMap;
import java.util.Map;
import org.apache.spark.ExceptionFailure;
import org.apache.spark.FetchFailed;
import org.apache.spark.TaskEndReason;
import org.apache.spark.storage.BlockManagerId;

/**
 * Failures of a stage attempt's tasks, to compare them with the failure reason of the stage.
 *
 * <p>Spark 4 fails every running stage of a job with the message of the task that failed, even stages without that
 * task.
 */
public final class TaskFailures {
  /** Maximum number of stored exceptions. The exception that fails a stage is among the last ones. */
  private static final int REMEMBERED = 16;

  /** Stack traces by exception message. */
  private final Map<String, String> traces = new BoundedMap<>(REMEMBERED);
  /** Executor that stored the shuffle output that a task most recently failed to fetch; null if unknown. */
  private BlockManagerId owner;

  void add(TaskEndReason reason) {
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
}
