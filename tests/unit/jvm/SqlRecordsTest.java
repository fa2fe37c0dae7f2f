package io.sparkevents;

import static io.sparkevents.Checks.is;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.sparkevents.listener.JobProperties;
import io.sparkevents.listener.JobRecords;
import io.sparkevents.listener.Redaction;
import io.sparkevents.listener.SqlRecords;
import io.sparkevents.queue.Record;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import org.apache.spark.SparkConf;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionEnd;
import org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart;
import org.apache.spark.sql.streaming.StreamingQueryListener.QueryTerminatedEvent;
import org.junit.jupiter.api.Test;
import scala.Option;

/** Tests of the records about the start and end of SQL executions. */
final class SqlRecordsTest {
  private final List<Record> batches = new ArrayList<>();
  private final JobRecords jobs =
      new JobRecords(batches::add, true, new JobProperties(new Redaction(Redaction.SPARK_DEFAULT)));

  private static SparkListenerEvent started(long id, long root, String description) {
    return started(id, root, description, "plan");
  }

  private static SparkListenerEvent started(long id, long root, String description, String plan) {
    return new SparkListenerSQLExecutionStart(
        id,
        Option.apply((Object) root),
        description,
        "details",
        plan,
        null,
        5,
        scala.collection.immutable.Map$.MODULE$.empty(),
        scala.collection.immutable.Set$.MODULE$.empty(),
        Option.empty(),
        Option.empty());
  }

  private static SparkListenerEvent ended(long id, String error) {
    return new SparkListenerSQLExecutionEnd(id, 9, Option.apply(error), Option.empty());
  }

  private static JsonNode line(Record record) throws Exception {
    return new ObjectMapper().readTree(record.line());
  }

  /**
   * Failures, and the first success after a failure, cause records. The record of a failure contains the description of
   * the outermost execution.
   */
  @Test
  void failuresAndTheNextSuccessAreRecorded() throws Exception {
    SqlRecords records = new SqlRecords(new Redaction(Redaction.SPARK_DEFAULT), jobs);
    is(line(records.of(started(1, 1, "nightly"))).path("description").asText(), "nightly");
    is(line(records.of(started(2, 1, "part"))).path("description").asText(), "nightly");
    JsonNode failed = line(records.of(ended(2, "[X_Y] no")));
    is(failed.path("execution_id").asLong() + " " + failed.path("root_id").asLong(), "2 1");
    is(failed.path("description").asText() + " " + failed.path("error").asText(), "nightly [X_Y] no");
    is(failed.path("time").asLong(), 9);
    JsonNode again = line(records.of(ended(1, "")));
    is(again.path("error").isNull(), true);
    is(records.of(ended(3, "")), null);
    // an execution with an unknown start, and an execution of a Spark version without error messages
    is(line(records.of(ended(7, "no"))).path("root_id").asLong(), 7);
    is(line(records.of(ended(8, null))).path("error").isNull(), true);
    records.of(started(9, 9, "password=hunter2"));
    is(line(records.of(ended(9, "no"))).path("description").asText(), "*********(redacted)");
  }

  /**
   * The record of a start contains the plan's lines that name tables and paths, redacted and not longer than the limit.
   */
  @Test
  void aStartNamesTablesAndPaths() throws Exception {
    SqlRecords records = new SqlRecords(new Redaction(Redaction.SPARK_DEFAULT), jobs);
    String plan =
        "== Physical Plan ==\n* Project (2)\n\n(1) Scan parquet a.b\nOutput [1]: [x]\nLocation: InMemoryFileIndex [file:/a]"
            + "\n\n(2) Project\nArguments: no\n\n(3) Execute InsertIntoHadoopFsRelationCommand\nArguments: s3://token@b, x";
    JsonNode line = line(records.of(started(1, 1, "x", plan)));
    is(
        line.path("plan"),
        "[\"(1) Scan parquet a.b\",\"Location: InMemoryFileIndex [file:/a]\","
            + "\"(3) Execute InsertIntoHadoopFsRelationCommand\",\"*********(redacted)\"]");
    is(line.path("time").asLong() + " " + line.path("root_id").asLong(), "5 1");
    StringBuilder many = new StringBuilder();
    for (int node = 0; node < 1_000; node++) {
      many.append("(1) Scan parquet table").append(node).append("\n");
    }
    int length = 0;
    for (JsonNode one : line(records.of(started(2, 2, "x", many.toString()))).path("plan")) {
      length += one.asText().length();
    }
    is(length, 4_096);
  }

  /** The listener passes events of Spark SQL on, and ignores events of other programs. */
  @Test
  void theListenerPassesEventsOfSparkSqlOn() throws Exception {
    SparkConf conf = new SparkConf(false);
    List<String> recorded = new ArrayList<>();
    Checks.Recorder destination = new Checks.Recorder(conf, end -> {});
    EventsListener listener = new EventsListener(conf, destination);
    UUID run = new UUID(0, 1);
    listener.onOtherEvent(started(1, 1, "x"));
    listener.onOtherEvent(new QueryTerminatedEvent(run, run, Option.empty(), Option.empty()));
    listener.onOtherEvent(new SparkListenerEvent() {});
    destination.take().forEach(record -> recorded.add(record.kind));
    is(recorded + " " + destination.queue.drops.total(), "[sql_execution_start, query_terminated] 0");
  }

  /** The start of a micro-batch's executions causes no record. */
  @Test
  void aMicroBatchIsNotRecorded() throws Exception {
    SqlRecords records = new SqlRecords(new Redaction(Redaction.SPARK_DEFAULT), jobs);
    is(records.of(started(1, 1, "name<br/>\nid = a<br/>\nrunId = b<br/>\nbatch = 3")), null);
    is(records.of(started(2, 1, "part")), null);
  }
}
