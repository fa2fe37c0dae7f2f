package io.sparkevents.listener;

import io.sparkevents.queue.BoundedMap;
import io.sparkevents.queue.Record;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.sql.execution.SparkPlanInfo;
import org.apache.spark.sql.execution.ui.SparkListenerDriverAccumUpdates;
import org.apache.spark.sql.execution.ui.SparkListenerSQLAdaptiveExecutionUpdate;
import org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionEnd;
import org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart;
import scala.Option;
import scala.Tuple2;
import scala.collection.Iterator;

/**
 * Creates the records of successful writes of SQL executions; those of micro-batches on request.
 *
 * <p>The write is the first node of the physical plan. A command of a file source has written if Spark reports its
 * metrics: the number of files, rows and bytes. A command of the newer interface (DataSource V2), or of a connector
 * without metrics, such as JDBC, has written if it succeeds; with the mode {@code ignore}, that is unknown. Outside
 * micro-batches, an outermost execution is one write; Spark runs each write of a {@code foreachBatch}
 * inside the execution of its micro-batch. A replay has the same rules ({@code event_log/logged_writes.py}). Used by the listener
 * thread only.
 */
final class WriteRecords {
  /** Maximum number of running executions, exceeded only if Spark dropped most end events. */
  private static final int MOST_RUNNING = 4_096;
  /** Maximum number of nodes above the write, such as that of adaptive execution. */
  private static final int DEEPEST = 8;
  /** Maximum number of nested executions of one execution in a record. */
  private static final int MOST_PARTS = 16;

  /** The description that Spark sets for the executions of a micro-batch: ids of the query and the run, and the batch. */
  private static final Pattern MICRO_BATCH =
      Pattern.compile("id = ([0-9a-f-]{36})(?:<br/>)?\\s+runId = ([0-9a-f-]{36})(?:<br/>)?\\s+batch = (\\d+)?");
  private static final Pattern COMMAND = Pattern.compile("Execute ");
  /** Commands of connectors of the older interface, which report no metrics of their own. */
  private static final Pattern CONNECTOR = Pattern.compile("Execute (?:Save|Insert)IntoDataSourceCommand");
  private static final String IGNORE = ", Ignore";
  private static final Pattern V2 =
      Pattern.compile("AppendData|Overwrite(?:ByExpression|PartitionsDynamic)|ReplaceData|WriteDelta|(?:Atomic)?(?:Create|Replace)\\w*AsSelect");
  private static final String NO_WRITE = "NoopWrite";

  private static final class Batch {
    final String query;
    final String run;
    /** Null for the batch that Spark initializes. */
    final Long number;
    /** The newest execution with a record. */
    long lastWrite = -1;

    Batch(Matcher description) {
      query = description.group(1);
      run = description.group(2);
      number = description.group(3) == null ? null : Long.valueOf(description.group(3));
    }
  }

  private static final class Write {
    final long root;
    final long started;
    final String node;
    /** Whether success means that data was written. */
    final boolean writesIfSuccessful;
    final boolean isConnector;
    /** The micro-batch; null outside micro-batches. */
    final Batch batch;
    final Map<Long, String> names;
    final Map<String, Long> values = new LinkedHashMap<>();

    Write(long root, long started, SparkPlanInfo node, String description, Batch batch) {
      this.batch = batch;
      this.root = root;
      this.started = started;
      String name = node == null ? "" : node.nodeName();
      isConnector = CONNECTOR.matcher(name).lookingAt();
      String arguments = isConnector ? PlanTables.argumentsOf(name, description) : "";
      this.node = node == null ? "" : Text.beginning((node.simpleString() + " " + arguments).trim());
      boolean isKnown = isConnector && !arguments.isEmpty() && !arguments.endsWith(IGNORE);
      writesIfSuccessful = isKnown || V2.matcher(name).lookingAt();
      names = node == null ? new LinkedHashMap<>() : PlanTree.metrics(node);
    }

    boolean isDone() {
      return writesIfSuccessful || !values.isEmpty();
    }
  }

  private final Redaction redaction;
  private final Map<Long, Write> running = new BoundedMap<>(MOST_RUNNING);
  /** Nested executions that have succeeded, by the outermost execution and by id, which is the order of their starts. */
  private final Map<Long, TreeMap<Long, Write>> nested = new BoundedMap<>(MOST_RUNNING);
  private final Map<Long, Batch> batches = new BoundedMap<>(MOST_RUNNING);
  private final boolean reportsStreams;

  /** @param reportsStreams whether to create records of writes in micro-batches */
  WriteRecords(Redaction redaction, boolean reportsStreams) {
    this.redaction = redaction;
    this.reportsStreams = reportsStreams;
  }

  /** Returns the record of a write that the event ends; otherwise null. */
  Record of(SparkListenerEvent event) {
    if (event instanceof SparkListenerSQLExecutionStart) {
      started((SparkListenerSQLExecutionStart) event);
    } else if (event instanceof SparkListenerSQLAdaptiveExecutionUpdate) {
      planned((SparkListenerSQLAdaptiveExecutionUpdate) event);
    } else if (event instanceof SparkListenerDriverAccumUpdates) {
      updated((SparkListenerDriverAccumUpdates) event);
    } else if (event instanceof SparkListenerSQLExecutionEnd) {
      return ended((SparkListenerSQLExecutionEnd) event);
    }
    return null;
  }

  private void started(SparkListenerSQLExecutionStart event) {
    long id = event.executionId();
    Option<Object> rootId = event.rootExecutionId();
    long root = rootId.isDefined() && rootId.get() instanceof Long ? (Long) rootId.get() : id;
    String description = event.description();
    Matcher described = id == root && description != null ? MICRO_BATCH.matcher(description) : null;
    if (described != null && described.find()) {
      batches.put(id, new Batch(described));
    }
    Batch batch = batches.get(root);
    if (batch == null || reportsStreams) {
      SparkPlanInfo node = writeOf(event.sparkPlanInfo());
      running.put(id, new Write(root, event.time(), node, event.physicalPlanDescription(), batch));
    }
  }

  /** Returns the node that writes; null if the plan does not write. */
  private static SparkPlanInfo writeOf(SparkPlanInfo plan) {
    SparkPlanInfo node = plan;
    for (int depth = 0; node != null && depth < DEEPEST; depth++) {
      String name = node.nodeName();
      if (COMMAND.matcher(name).lookingAt() || V2.matcher(name).lookingAt()) {
        return node.simpleString().contains(NO_WRITE) ? null : node;
      }
      List<SparkPlanInfo> children = PlanTree.children(node);
      node = children.size() == 1 ? children.get(0) : null;
    }
    return null;
  }

  /** Adaptive execution plans the write again after each stage, and its metrics then have other accumulators. */
  private void planned(SparkListenerSQLAdaptiveExecutionUpdate event) {
    Write write = running.get(event.executionId());
    SparkPlanInfo node = write == null || write.node.isEmpty() ? null : writeOf(event.sparkPlanInfo());
    if (node != null) {
      write.names.clear();
      write.names.putAll(PlanTree.metrics(node));
    }
  }

  private void updated(SparkListenerDriverAccumUpdates event) {
    Write write = running.get(event.executionId());
    if (write != null && !write.names.isEmpty()) {
      // The type of the collection differs between Scala 2.12 and 2.13, so read it as an element of the case class.
      Iterator<?> updates = ((scala.collection.Iterable<?>) event.productElement(1)).iterator();
      while (updates.hasNext()) {
        Tuple2<?, ?> update = (Tuple2<?, ?>) updates.next();
        String name = write.names.get(((Number) update._1()).longValue());
        if (name != null) {
          write.values.put(name, ((Number) update._2()).longValue());
        }
      }
    }
  }

  private Record ended(SparkListenerSQLExecutionEnd event) {
    long id = event.executionId();
    batches.remove(id);
    Write write = running.remove(id);
    Option<String> message = event.errorMessage();
    boolean hasFailed = message.isDefined() && !message.get().isEmpty();
    if (write == null) {
      return null;
    }
    if (write.batch != null) {
      boolean isDone = !hasFailed && !write.node.isEmpty() && write.isDone();
      // A connector such as Delta Lake writes in a nested execution, which has its own record.
      isDone &= !(write.isConnector && write.batch.lastWrite > id);
      write.batch.lastWrite = isDone ? Math.max(write.batch.lastWrite, id) : write.batch.lastWrite;
      return isDone ? record(id, event.time(), write, Collections.singletonMap(id, write), write.values) : null;
    }
    TreeMap<Long, Write> parts = nested.computeIfAbsent(write.root, first -> new TreeMap<>());
    if (!hasFailed && !write.node.isEmpty() && parts.size() < MOST_PARTS) {
      parts.put(id, write);
    }
    if (id != write.root) {
      return null;
    }
    nested.remove(id);
    Write done = null;
    for (Write part : parts.values()) {
      // The first execution with metrics; otherwise the first that has written.
      boolean isBetter = done == null || (done.values.isEmpty() && !part.values.isEmpty());
      done = part.isDone() && isBetter ? part : done;
    }
    return hasFailed || done == null ? null : record(id, event.time(), write, parts, done.values);
  }

  private Record record(long id, long time, Write write, Map<Long, Write> parts, Map<String, Long> values) {
    int size = 0;
    for (Write part : parts.values()) {
      size += part.node.length();
    }
    return new Record(
        "data_written",
        Record.Priority.LIFECYCLE,
        null,
        json -> {
          Record.write(json, "execution_id", id, "started", write.started, "time", time, "metrics", values);
          if (write.batch != null) {
            Batch batch = write.batch;
            Record.write(json, "query_id", batch.query, "run_id", batch.run, "batch_id", batch.number);
          }
          json.writeObjectFieldStart("nodes");
          for (Map.Entry<Long, Write> part : parts.entrySet()) {
            json.writeStringField(String.valueOf(part.getKey()), redaction.redact("plan", part.getValue().node));
          }
          json.writeEndObject();
        },
        size);
  }
}
