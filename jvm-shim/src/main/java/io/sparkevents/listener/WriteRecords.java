package io.sparkevents.listener;

import io.sparkevents.queue.BoundedMap;
import io.sparkevents.queue.Record;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.scheduler.AccumulableInfo;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.scheduler.StageInfo;
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
 * <p>A command of a file source has written if Spark reports its metrics: the number of files, rows and bytes. A command
 * of the newer interface (DataSource V2), or of a connector without metrics, such as JDBC, has written if it succeeds; with
 * the mode {@code ignore}, that is unknown. The record of a statement with several insertions lists them. Outside
 * micro-batches, an outermost execution is one write; Spark runs each write of a {@code foreachBatch} inside the execution
 * of its micro-batch. A replay has the same rules ({@code event_log/logged_writes.py}). Used by the listener thread only.
 */
final class WriteRecords {
  /** Maximum number of running executions, exceeded only if Spark dropped most end events. */
  private static final int MOST_RUNNING = 4_096;
  /** Maximum number of nested executions of one execution in a record. */
  private static final int MOST_PARTS = 16;

  /** The description that Spark sets for the executions of a micro-batch: ids of the query and the run, and the batch. */
  private static final Pattern MICRO_BATCH =
      Pattern.compile("id = ([0-9a-f-]{36})(?:<br/>)?\\s+runId = ([0-9a-f-]{36})(?:<br/>)?\\s+batch = (\\d+)?");

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
    /** The micro-batch; null outside micro-batches. */
    final Batch batch;
    final List<WriteCommand> commands;

    Write(long root, long started, List<WriteCommand> commands, Batch batch) {
      this.root = root;
      this.started = started;
      this.commands = commands;
      this.batch = batch;
    }

    boolean isDone() {
      return commands.stream().anyMatch(WriteCommand::isDone);
    }

    boolean hasMetrics() {
      return commands.stream().anyMatch(command -> !command.values.isEmpty());
    }

    /** Returns the only command, or the first one. */
    WriteCommand first() {
      return commands.get(0);
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
      List<WriteCommand> commands = WriteCommand.in(event.sparkPlanInfo(), event.physicalPlanDescription());
      running.put(id, new Write(root, event.time(), commands, batch));
    }
  }

  private void planned(SparkListenerSQLAdaptiveExecutionUpdate event) {
    Write write = running.get(event.executionId());
    if (write != null && !write.commands.isEmpty()) {
      WriteCommand.planned(write.commands, event.sparkPlanInfo());
    }
  }

  private void updated(SparkListenerDriverAccumUpdates event) {
    Write write = running.get(event.executionId());
    if (write != null && !write.commands.isEmpty()) {
      // The type of the collection differs between Scala 2.12 and 2.13, so read it as an element of the case class.
      Iterator<?> updates = ((scala.collection.Iterable<?>) event.productElement(1)).iterator();
      while (updates.hasNext()) {
        Tuple2<?, ?> update = (Tuple2<?, ?>) updates.next();
        long accumulator = ((Number) update._1()).longValue();
        write.commands.forEach(command -> command.updated(accumulator, ((Number) update._2()).longValue()));
      }
    }
  }

  /** Notes the rows that the tasks of a stage have counted for running writes, such as the rows that a merge deleted. */
  void stageCompleted(StageInfo stage) {
    List<WriteCommand> counting = new ArrayList<>();
    for (Write write : running.values()) {
      for (WriteCommand command : write.commands) {
        if (command.hasCounts()) {
          counting.add(command);
        }
      }
    }
    if (counting.isEmpty()) {
      return;
    }
    Iterator<AccumulableInfo> accumulables = stage.accumulables().valuesIterator();
    while (accumulables.hasNext()) {
      AccumulableInfo accumulable = accumulables.next();
      Option<Object> value = accumulable.value();
      if (value.isDefined() && value.get() instanceof Long) {
        counting.forEach(command -> command.counted(accumulable.id(), (Long) value.get()));
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
    boolean isWrite = !hasFailed && !write.commands.isEmpty();
    if (write.batch != null) {
      // The nested execution that writes has its own record.
      boolean isDone = isWrite && write.isDone() && !(write.first().writesInside && write.batch.lastWrite > id);
      write.batch.lastWrite = isDone ? Math.max(write.batch.lastWrite, id) : write.batch.lastWrite;
      return isDone ? record(id, event.time(), write, nodesInBatch(id, write), write) : null;
    }
    TreeMap<Long, Write> parts = nested.computeIfAbsent(write.root, first -> new TreeMap<>());
    if (isWrite && parts.size() < MOST_PARTS) {
      parts.put(id, write);
    }
    if (id != write.root) {
      return null;
    }
    nested.remove(id);
    Write done = null;
    Map<Long, String> nodes = new LinkedHashMap<>();
    for (Map.Entry<Long, Write> entry : parts.entrySet()) {
      Write part = entry.getValue();
      nodes.put(entry.getKey(), part.first().text);
      // The first execution with metrics; otherwise the first that has written.
      boolean isBetter = done == null || (!done.hasMetrics() && part.hasMetrics());
      done = part.isDone() && isBetter ? part : done;
    }
    return hasFailed || done == null ? null : record(id, event.time(), write, nodes, done);
  }

  /**
   * Returns the write's node, after the command that creates the table, inside which Spark runs the write. Threads of a
   * batch may write at a time, so either the path or the order of the executions must show the command.
   */
  private Map<Long, String> nodesInBatch(long id, Write write) {
    Map<Long, String> nodes = new LinkedHashMap<>();
    int writing = 0;
    for (Map.Entry<Long, Write> entry : running.entrySet()) {
      Write outer = entry.getValue();
      if (outer.batch == write.batch && !outer.commands.isEmpty()) {
        writing++;
        if (outer.first().createsPathOf(write.first())) {
          nodes.put(entry.getKey(), outer.first().creation);
        }
      }
    }
    Write before = running.get(id - 1);
    boolean isOnly = writing == 1 && before != null && before.batch == write.batch && !before.commands.isEmpty();
    if (isOnly && before.first().createsWithoutPath()) {
      nodes.put(id - 1, before.first().creation);
    } else if (nodes.size() > 1) {
      nodes.clear();
    }
    nodes.put(id, write.first().text);
    return nodes;
  }

  /** @param done the execution that has written, which is {@code write} or nested in it */
  private Record record(long id, long time, Write write, Map<Long, String> nodes, Write done) {
    int size = 0;
    for (String node : nodes.values()) {
      size += node.length();
    }
    boolean hasSeveral = done.commands.size() > 1;
    for (WriteCommand command : hasSeveral ? done.commands : Collections.<WriteCommand>emptyList()) {
      size += command.text.length();
    }
    return new Record(
        "data_written",
        Record.Priority.LIFECYCLE,
        null,
        json -> {
          Map<String, Long> metrics = hasSeveral ? Collections.emptyMap() : done.first().values;
          Record.write(json, "execution_id", id, "started", write.started, "time", time, "metrics", metrics);
          if (write.batch != null) {
            Batch batch = write.batch;
            Record.write(json, "query_id", batch.query, "run_id", batch.run, "batch_id", batch.number);
          }
          json.writeObjectFieldStart("nodes");
          for (Map.Entry<Long, String> node : nodes.entrySet()) {
            json.writeStringField(String.valueOf(node.getKey()), redaction.redact("plan", node.getValue()));
          }
          json.writeEndObject();
          if (hasSeveral) {
            json.writeArrayFieldStart("insertions");
            for (WriteCommand command : done.commands) {
              if (command.isDone()) {
                json.writeStartObject();
                Record.write(json, "node", redaction.redact("plan", command.text), "metrics", command.values);
                json.writeEndObject();
              }
            }
            json.writeEndArray();
          }
        },
        size);
  }
}
