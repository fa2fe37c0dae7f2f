package io.sparkevents.listener;

import io.sparkevents.queue.BoundedMap;
import io.sparkevents.queue.Record;
import java.util.Arrays;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.spark.scheduler.SparkListenerEvent;
import scala.Product;

/**
 * Creates the records of statements that the Thrift server or the Spark Connect server runs for a client: the start of a
 * statement of the Thrift server and of a command of a declarative pipeline, the end of the latter, and every failure and
 * timeout.
 *
 * <p>The events are not public, but they are case classes, whose elements this class reads by position. Other work of
 * Spark Connect needs no start, because its jobs have tags. Used by the listener thread only.
 */
final class StatementRecords {
  /** Maximum number of running statements, exceeded only if Spark dropped many end events. */
  private static final int MOST_RUNNING = 2_000;

  private static final String THRIFT = "org.apache.spark.sql.hive.thriftserver.ui.SparkListenerThriftServerOperation";
  private static final String CONNECT = "org.apache.spark.sql.connect.service.SparkListenerConnectOperation";

  /** Beginning of the text of a command that defines or runs a declarative pipeline. */
  private static final String PIPELINE = "pipeline_command {";
  /** Indentation of the lines inside the plan of such a command. */
  private static final String INSIDE = "       ";
  private static final String DESCRIPTION = "spark.job.description";

  private static final class Statement {
    final String session;
    final String user;
    final String text;
    /** Tag of the statement's jobs; null for the Thrift server, where the statement's id is the job group. */
    final String tag;
    final long started;

    Statement(Object session, Object user, Object text, Object tag, Object started) {
      this.session = text(session);
      this.user = text(user);
      this.text = Text.beginning(text(text));
      this.tag = tag == null ? null : text(tag);
      this.started = ((Number) started).longValue();
    }

    boolean isOfPipeline() {
      return text.startsWith(PIPELINE);
    }
  }

  private static final Statement UNKNOWN = new Statement("", "", "", null, 0);

  private final Redaction redaction;
  private final Map<String, Statement> running = new BoundedMap<>(MOST_RUNNING);

  StatementRecords(Redaction redaction) {
    this.redaction = redaction;
  }

  /** Returns the record of an event about a statement; null if there is nothing to report, and for other events. */
  Record of(SparkListenerEvent event) {
    String name = event.getClass().getName();
    if (!(event instanceof Product)) {
      return null;
    }
    if (name.startsWith(THRIFT)) {
      return ofThriftServer(name.substring(THRIFT.length()), (Product) event);
    }
    return name.startsWith(CONNECT) ? ofConnect(name.substring(CONNECT.length()), (Product) event) : null;
  }

  private Record ofThriftServer(String step, Product event) {
    String id = text(event.productElement(0));
    switch (step) {
      case "Start":
        Object user = event.productElement(5);
        Statement started =
            new Statement(event.productElement(1), user, event.productElement(2), null, event.productElement(4));
        running.put(id, started);
        return record("statement_started", id, started, started.started, "", "");
      case "Error":
        String message = text(event.productElement(1));
        return record("statement_failed", id, known(id), event.productElement(3), message, event.productElement(2));
      case "Timeout":
        return record("statement_timed_out", id, known(id), event.productElement(1), "", "");
      case "Closed":
        running.remove(id);
        return null;
      default:
        return null;
    }
  }

  private Record ofConnect(String step, Product event) {
    String id = text(event.productElement(1));
    switch (step) {
      case "Started":
        Object user = event.productElement(4);
        Object text = event.productElement(6);
        Object time = event.productElement(2);
        Statement started = new Statement(event.productElement(3), user, text, event.productElement(0), time);
        running.put(id, started);
        return started.isOfPipeline() ? record("pipeline_command_started", id, started, time, "", "") : null;
      case "Finished":
        return known(id).isOfPipeline()
            ? record("pipeline_command_ended", id, known(id), event.productElement(2), "", "")
            : null;
      case "Canceled":
        return known(id).isOfPipeline()
            ? record("pipeline_command_cancelled", id, known(id), event.productElement(2), "", "")
            : null;
      case "Failed":
        return record("statement_failed", id, known(id), event.productElement(2), text(event.productElement(3)), "");
      case "Closed":
        running.remove(id);
        return null;
      default:
        return null;
    }
  }

  private Statement known(String id) {
    return running.getOrDefault(id, UNKNOWN);
  }

  private Record record(String kind, String id, Statement statement, Object time, String message, Object trace) {
    String shownMessage = Text.cut(message);
    String shownTrace = Text.cut(text(trace));
    long at = ((Number) time).longValue();
    return new Record(
        kind,
        kind.equals("statement_started") ? Record.Priority.ROUTINE : Record.Priority.LIFECYCLE,
        null,
        json -> {
          Record.write(json, "statement_id", id, "time", at, "started", statement.started);
          Record.write(json, "session_id", statement.session, "user", statement.user, "tag", statement.tag);
          Record.write(json, "statement", redacted(statement));
          Record.write(json, "error", shownMessage, "trace", shownTrace);
        },
        Text.length(statement.text, shownMessage, shownTrace));
  }

  /**
   * Returns the text of a statement. A command of a pipeline contains a plan, whose options may be secrets; only the lines
   * around the plan are kept, and each line is redacted for itself, so that the names of flow and data set stay.
   */
  private String redacted(Statement statement) {
    if (!statement.isOfPipeline()) {
      return redaction.redact(DESCRIPTION, statement.text);
    }
    return Arrays.stream(statement.text.split("\n"))
        .filter(line -> !line.startsWith(INSIDE))
        .map(line -> redaction.redact(DESCRIPTION, line))
        .collect(Collectors.joining("\n"));
  }

  private static String text(Object value) {
    return value == null ? "" : value.toString();
  }
}
