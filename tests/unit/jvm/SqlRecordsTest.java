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
import java.util.Arrays;
import java.util.List;
import java.util.UUID;
import org.apache.spark.SparkConf;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.sql.execution.SparkPlanInfo;
import org.apache.spark.sql.execution.metric.SQLMetricInfo;
import org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionEnd;
import org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart;
import org.apache.spark.sql.streaming.StreamingQueryListener.QueryTerminatedEvent;
import org.junit.jupiter.api.Test;
import scala.Option;
import scala.Tuple2;
import scala.collection.JavaConverters;
import scala.collection.immutable.Seq;

/** Tests of the records about the start and end of SQL executions. */
final class SqlRecordsTest {
  private final List<Record> batches = new ArrayList<>();
  private final JobRecords jobs =
      new JobRecords(batches::add, true, new JobProperties(new Redaction(Redaction.SPARK_DEFAULT)));

  private static SparkListenerEvent started(long id, long root, String description) {
    return started(id, root, description, "plan", null);
  }

  private static SparkListenerEvent started(
      long id, long root, String description, String printed, SparkPlanInfo plan) {
    return started(id, root, description, printed, plan, null);
  }

  private static SparkListenerEvent started(
      long id, long root, String description, String printed, SparkPlanInfo plan, String group) {
    return new SparkListenerSQLExecutionStart(
        id,
        Option.apply((Object) root),
        description,
        "details",
        printed,
        plan,
        5,
        scala.collection.immutable.Map$.MODULE$.empty(),
        scala.collection.immutable.Set$.MODULE$.empty(),
        Option.apply(group),
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
    // the outermost execution began before the failure
    is(records.of(ended(1, "")), null);
    records.of(started(3, 3, "next"));
    is(line(records.of(ended(3, ""))).path("error").isNull(), true);
    is(records.of(ended(4, "")), null);
    // an execution with an unknown start, and an execution of a Spark version without error messages
    is(line(records.of(ended(7, "no"))).path("root_id").asLong(), 7);
    records.of(started(8, 8, "x"));
    is(line(records.of(ended(8, null))).path("error").isNull(), true);
    records.of(started(9, 9, "password=hunter2"));
    is(line(records.of(ended(9, "no"))).path("description").asText(), "*********(redacted)");
  }

  /** Each job group has its own first success; that of any group follows a failure without a group. */
  @Test
  void theNextSuccessOfEachGroupIsRecorded() {
    SqlRecords records = new SqlRecords(new Redaction(Redaction.SPARK_DEFAULT), jobs);
    String[] groups = {"a", null, "b", "b", "a", "a"};
    String[] errors = {"no", "no", "", "", "", ""};
    StringBuilder recorded = new StringBuilder();
    for (int id = 0; id < groups.length; id++) {
      records.of(started(id, id, "x", "plan", null, groups[id]));
      recorded.append(records.of(ended(id, errors[id])) == null ? 0 : 1);
    }
    is(recorded.toString(), "111010");
  }

  private static SparkPlanInfo node(String name, String arguments, String location, SparkPlanInfo... children) {
    Seq<SparkPlanInfo> below = JavaConverters.asScalaBuffer(Arrays.asList(children)).toSeq();
    scala.collection.immutable.Map<String, String> metadata = scala.collection.immutable.Map$.MODULE$.empty();
    if (location != null) {
      metadata = metadata.$plus(new Tuple2<>("Location", location));
    }
    Seq<SQLMetricInfo> none = JavaConverters.asScalaBuffer(new ArrayList<SQLMetricInfo>()).toSeq();
    return new SparkPlanInfo(name, (name + " " + arguments).trim(), below, metadata, none);
  }

  private JsonNode plan(String printed, SparkPlanInfo root) throws Exception {
    SqlRecords records = new SqlRecords(new Redaction(Redaction.SPARK_DEFAULT), jobs);
    return line(records.of(started(1, 1, "x", printed, root))).path("plan");
  }

  /** The record of a start contains the plan's nodes that name tables and paths, redacted and within the limit. */
  @Test
  void aStartNamesTablesAndPaths() throws Exception {
    SparkPlanInfo scan = node("Scan parquet a.b", "", "InMemoryFileIndex(1 paths)[file:/a]");
    SparkPlanInfo insert = node("Execute InsertIntoX", "s3://token@b, x", null, node("Project", "no", null, scan));
    is(
        plan("", insert),
        "[{\"name\":\"Execute InsertIntoX\",\"arguments\":\"*********(redacted)\"},"
            + "{\"name\":\"Scan parquet a.b\",\"location\":\"InMemoryFileIndex(1 paths)[file:/a]\"}]");
    SparkPlanInfo[] many = new SparkPlanInfo[1_000];
    Arrays.setAll(many, number -> node("Scan parquet table" + number, "", null));
    int length = 0;
    for (JsonNode one : plan("", node("Union", "", null, many))) {
      length += one.path("name").asText().length();
    }
    is(length, 4_096);
  }

  /** Only the printed plan contains the arguments of a command that is executed at once. */
  @Test
  void aCommandHasTheArgumentsOfThePrintedPlan() throws Exception {
    String printed =
        "== Physical Plan ==\nExecute SaveX (1)\n   +- SaveX (2)\n\n\n(1) Execute SaveX\nOutput: []\n\n"
            + "(2) SaveX\nArguments: `a`.`b`, Append\n\n";
    SparkPlanInfo command = node("Execute SaveX", "", null);
    is(plan(printed, command), "[{\"name\":\"Execute SaveX\",\"arguments\":\"`a`.`b`, Append\"}]");
    is(plan("(2) SaveX\n\n(3) Other\nArguments: c", command), "[{\"name\":\"Execute SaveX\"}]");
    is(plan("", null), "[]");
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
