package io.sparkevents.listener;

import io.sparkevents.queue.BoundedMap;
import io.sparkevents.queue.Record;
import java.util.Map;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionEnd;
import org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart;
import scala.Option;

/**
 * Makes the records of SQL executions that fail, and of the first success after a failure.
 *
 * <p>A separate class, because a driver with only Spark core lacks the classes that it refers to. Used by the listener
 * thread only.
 */
public final class SqlRecords {
  private static final String NAMES = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecution";
  /** Limit of running executions; it is exceeded only if Spark dropped the end events of most. */
  private static final int MOST_RUNNING = 4096;

  private static final class Execution {
    final long root;
    final String description;

    Execution(long root, String description) {
      this.root = root;
      this.description = description;
    }
  }

  private final Redaction redaction;
  private final Map<Long, Execution> running = new BoundedMap<>(MOST_RUNNING);
  private boolean failedLast;

  public SqlRecords(Redaction redaction) {
    this.redaction = redaction;
  }

  /** Whether {@link #of} handles the event. Loads no class of Spark SQL. */
  public static boolean isExecution(SparkListenerEvent event) {
    return event.getClass().getName().startsWith(NAMES);
  }

  /** Returns the record of an execution's end, or null if there is nothing to report. */
  public Record of(SparkListenerEvent event) {
    if (event instanceof SparkListenerSQLExecutionStart) {
      started((SparkListenerSQLExecutionStart) event);
    } else if (event instanceof SparkListenerSQLExecutionEnd) {
      return ended((SparkListenerSQLExecutionEnd) event);
    }
    return null;
  }

  private void started(SparkListenerSQLExecutionStart event) {
    Option<Object> rootId = event.rootExecutionId();
    long root = rootId.isDefined() && rootId.get() instanceof Long ? (Long) rootId.get() : event.executionId();
    Execution outermost = running.get(root);
    // The outermost execution has the description of the micro-batch or of the program's job; it applies to its parts.
    String description = outermost == null ? event.description() : outermost.description;
    running.put(event.executionId(), new Execution(root, description));
  }

  private Record ended(SparkListenerSQLExecutionEnd event) {
    long id = event.executionId();
    long time = event.time();
    Execution ended = running.remove(id);
    Execution known = ended == null ? new Execution(id, null) : ended;
    Option<String> message = event.errorMessage();
    // Spark gives a successful execution an empty message.
    String error = message.isDefined() && !message.get().isEmpty() ? message.get() : null;
    if (error == null && !failedLast) {
      return null;
    }
    failedLast = error != null;
    return new Record(
        "sql_execution_end",
        Record.Priority.LIFECYCLE,
        error == null ? Record.Change.forget("sql") : Record.Change.begin("sql", Record.Rank.WORK),
        json -> {
          String description = Text.cut(redaction.redact("spark.job.description", known.description));
          Record.write(json, "execution_id", id, "root_id", known.root, "time", time);
          Record.write(json, "description", description, "error", Text.cut(error));
        },
        error == null ? 0 : 2 * error.length());
  }
}
