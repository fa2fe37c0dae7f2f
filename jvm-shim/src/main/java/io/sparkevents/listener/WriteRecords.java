package io.sparkevents.listener;

import io.sparkevents.queue.BoundedMap;
import io.sparkevents.queue.Record;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Pattern;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.sql.execution.SparkPlanInfo;
import org.apache.spark.sql.execution.ui.SparkListenerDriverAccumUpdates;
import org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionEnd;
import org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart;
import scala.Option;
import scala.Tuple2;
import scala.collection.Iterator;

/**
 * Creates the records of successful writes of SQL executions outside micro-batches.
 *
 * <p>The write is the first node of the physical plan. A command of a file source has written if Spark reports its
 * metrics: the number of files, rows and bytes. A command of the newer interface (DataSource V2) has written if it
 * succeeds. A replay has the same rules ({@code event_log/writes.py}). Used by the listener thread only.
 */
final class WriteRecords {
  /** Maximum number of running executions, exceeded only if Spark dropped most end events. */
  private static final int MOST_RUNNING = 4_096;
  /** Maximum number of nodes above the write, such as that of adaptive execution. */
  private static final int DEEPEST = 8;
  /** Maximum number of nested executions of one execution in a record. */
  private static final int MOST_PARTS = 16;

  private static final Pattern MICRO_BATCH = Pattern.compile("runId = [0-9a-f-]{36}(?:<br/>)?\\s+batch = ");
  private static final Pattern COMMAND = Pattern.compile("Execute ");
  private static final Pattern V2 =
      Pattern.compile("AppendData|Overwrite(?:ByExpression|PartitionsDynamic)|ReplaceData|WriteDelta|(?:Atomic)?\\w+AsSelect");
  private static final String NO_WRITE = "NoopWrite";

  private static final class Write {
    final long root;
    final long started;
    final String node;
    final boolean isV2;
    final Map<Long, String> names;
    final Map<String, Long> values = new LinkedHashMap<>();

    Write(long root, long started, SparkPlanInfo node, boolean isV2) {
      this.root = root;
      this.started = started;
      this.node = node == null ? "" : Text.beginning(node.simpleString());
      this.isV2 = isV2;
      names = node == null ? new LinkedHashMap<>() : PlanTree.metrics(node);
    }

    boolean isDone() {
      return isV2 || !values.isEmpty();
    }
  }

  private final Redaction redaction;
  private final Map<Long, Write> running = new BoundedMap<>(MOST_RUNNING);
  /** Nested executions that have succeeded, by the outermost execution and by id, which is the order of their starts. */
  private final Map<Long, TreeMap<Long, Write>> nested = new BoundedMap<>(MOST_RUNNING);
  private final Map<Long, Boolean> batches = new BoundedMap<>(MOST_RUNNING);

  WriteRecords(Redaction redaction) {
    this.redaction = redaction;
  }

  /** Returns the record of a write that the event ends; otherwise null. */
  Record of(SparkListenerEvent event) {
    if (event instanceof SparkListenerSQLExecutionStart) {
      started((SparkListenerSQLExecutionStart) event);
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
    if (id == root && description != null && MICRO_BATCH.matcher(description).find()) {
      batches.put(id, true);
    }
    if (!batches.containsKey(root)) {
      SparkPlanInfo node = writeOf(event.sparkPlanInfo());
      boolean isV2 = node != null && V2.matcher(node.nodeName()).lookingAt();
      running.put(id, new Write(root, event.time(), node, isV2));
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
      done = done == null && part.isDone() ? part : done;
    }
    return hasFailed || done == null ? null : record(id, event.time(), write.started, parts, done.values);
  }

  private Record record(long id, long time, long started, Map<Long, Write> parts, Map<String, Long> values) {
    int size = 0;
    for (Write part : parts.values()) {
      size += part.node.length();
    }
    return new Record(
        "data_written",
        Record.Priority.LIFECYCLE,
        null,
        json -> {
          Record.write(json, "execution_id", id, "started", started, "time", time, "metrics", values);
          json.writeObjectFieldStart("nodes");
          for (Map.Entry<Long, Write> part : parts.entrySet()) {
            json.writeStringField(String.valueOf(part.getKey()), redaction.redact("plan", part.getValue().node));
          }
          json.writeEndObject();
        },
        size);
  }
}
