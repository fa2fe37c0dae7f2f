package io.sparkevents.listener;

import io.sparkevents.queue.BoundedMap;
import io.sparkevents.queue.Record;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionEnd;
import org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart;
import scala.Option;

/**
 * Creates the records of SQL executions outside micro-batches: starts, failures, and the first success of each job group
 * after a failure.
 *
 * <p>This is a separate class, because a driver with only Spark core lacks the classes of Spark SQL. Used by the
 * listener thread only.
 */
public final class SqlRecords {
  /** Maximum number of running executions, exceeded only if Spark dropped most end events. */
  private static final int MOST_RUNNING = 4096;

  /** Strings in the description that Spark sets for the executions of a micro-batch. */
  private static final String RUN = "\nrunId = ";
  private static final String BATCH = "\nbatch = ";

  private static final class Execution {
    final long root;
    final String description;
    final String group;
    final boolean isMicroBatch;

    Execution(long root, String description, String group) {
      this.root = root;
      this.group = group == null ? "" : group;
      this.description = Text.beginning(description);
      isMicroBatch = description != null && description.contains(RUN) && description.contains(BATCH);
    }
  }

  private static final Pattern MICRO_BATCH =
      Pattern.compile("(?:^|\n)id = ([0-9a-f-]{36})\nrunId = [0-9a-f-]{36}\nbatch = (\\d+)");
  /** Tag of one execution, which is different for each micro-batch. */
  private static final Pattern OF_EXECUTION = Pattern.compile(",?spark-session-[0-9a-f-]{36}-execution-root-id-\\d+");

  private final Redaction redaction;
  private final JobRecords jobs;
  private final Map<Long, Execution> running = new BoundedMap<>(MOST_RUNNING);
  /** By job group, "" for none: the newest execution at the time of the last failure, if no success followed. */
  private final Map<String, Long> failed = new BoundedMap<>(MOST_RUNNING);
  private long newest = -1;

  /** @param jobs receives the sessions of micro-batches */
  public SqlRecords(Redaction redaction, JobRecords jobs) {
    this.redaction = redaction;
    this.jobs = jobs;
  }

  /** Returns the record of an execution's start or completion, or null if there is nothing to report. */
  public Record of(SparkListenerEvent event) {
    if (event instanceof SparkListenerSQLExecutionStart) {
      return started((SparkListenerSQLExecutionStart) event);
    } else if (event instanceof SparkListenerSQLExecutionEnd) {
      return ended((SparkListenerSQLExecutionEnd) event);
    }
    return null;
  }

  private Record started(SparkListenerSQLExecutionStart event) {
    Option<Object> rootId = event.rootExecutionId();
    long root = rootId.isDefined() && rootId.get() instanceof Long ? (Long) rootId.get() : event.executionId();
    Execution outermost = running.get(root);
    // Use the description of the outermost execution, which describes the micro-batch or the program's statement and
    // also applies to nested executions.
    String group = group(event);
    Execution started = outermost == null ? new Execution(root, event.description(), group) : outermost;
    running.put(event.executionId(), started);
    newest = Math.max(newest, event.executionId());
    String tags = tags(event);
    if (started.isMicroBatch) {
      Matcher batch = MICRO_BATCH.matcher(started.description);
      String ofQuery = OF_EXECUTION.matcher(tags).replaceAll("");
      if (batch.find() && !ofQuery.isEmpty()) {
        jobs.batchStarted(batch.group(1), batch.group(2), ofQuery);
      }
      return null;
    }
    String description = started.description;
    long id = event.executionId();
    long time = event.time();
    PlanTables plan = new PlanTables(event.sparkPlanInfo(), event.physicalPlanDescription());
    return new Record(
        "sql_execution_start",
        Record.Priority.ROUTINE,
        null,
        json -> {
          Record.write(json, "execution_id", id, "root_id", root, "time", time);
          Record.write(json, "description", redact(description));
          plan.write(json, redaction);
          Record.write(json, "tags", redaction.redact(JobProperties.TAGS, tags), "group", group);
        },
        Text.length(description, tags, group) + plan.length());
  }

  /** Returns whether an execution is the first success after a failure in a group. */
  private boolean follows(long id, String group) {
    Long newestThen = failed.get(group);
    boolean follows = newestThen != null && id > newestThen;
    if (follows) {
      failed.remove(group);
    }
    return follows;
  }

  /** Returns the tags of the execution's jobs, separated by commas; empty if the Spark version does not report them. */
  private static String tags(SparkListenerSQLExecutionStart event) {
    try {
      return Text.beginning(event.jobTags().mkString(","));
    } catch (LinkageError older) {
      return "";
    }
  }

  /** Returns the group of the execution's jobs; null if it has none, or if the Spark version does not report it. */
  private static String group(SparkListenerSQLExecutionStart event) {
    try {
      return Text.beginning(ApplicationRecords.orNull(event.jobGroupId()));
    } catch (LinkageError older) {
      return null;
    }
  }

  private String redact(String description) {
    return redaction.redact("spark.job.description", description);
  }

  private Record ended(SparkListenerSQLExecutionEnd event) {
    long id = event.executionId();
    long time = event.time();
    Execution ended = running.remove(id);
    Execution known = ended == null ? new Execution(id, null, null) : ended;
    Option<String> message = event.errorMessage();
    // For a successful execution, Spark sets an empty message.
    String error = message.isDefined() && !message.get().isEmpty() ? message.get() : null;
    if (error != null) {
      failed.put(known.group, newest);
    } else if (!follows(id, known.group) & !follows(id, "")) {
      return null;
    }
    String shownError = Text.cut(error);
    return new Record(
        "sql_execution_end",
        Record.Priority.LIFECYCLE,
        // The sidecar's memory contains the failures that stand.
        null,
        json -> {
          Record.write(json, "execution_id", id, "root_id", known.root, "time", time);
          Record.write(json, "description", redact(known.description), "error", shownError);
        },
        Text.length(known.description, shownError));
  }
}
