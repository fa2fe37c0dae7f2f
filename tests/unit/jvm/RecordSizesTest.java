package io.sparkevents;

import static io.sparkevents.Checks.is;

import io.sparkevents.listener.Text;
import io.sparkevents.queue.QueueConfig;
import io.sparkevents.queue.Record;
import io.sparkevents.queue.RecordQueue;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import java.util.TreeSet;
import java.util.UUID;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkException;
import org.apache.spark.scheduler.JobFailed;
import org.apache.spark.scheduler.SparkListenerApplicationStart;
import org.apache.spark.scheduler.SparkListenerExecutorRemoved;
import org.apache.spark.scheduler.SparkListenerJobEnd;
import org.apache.spark.scheduler.SparkListenerJobStart;
import org.apache.spark.scheduler.SparkListenerStageCompleted;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;
import org.apache.spark.scheduler.StageInfo;
import org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionEnd;
import org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart;
import org.apache.spark.sql.streaming.SinkProgress;
import org.apache.spark.sql.streaming.SourceProgress;
import org.apache.spark.sql.streaming.StateOperatorProgress;
import org.apache.spark.sql.streaming.StreamingQueryListener.QueryProgressEvent;
import org.apache.spark.sql.streaming.StreamingQueryListener.QueryStartedEvent;
import org.apache.spark.sql.streaming.StreamingQueryListener.QueryTerminatedEvent;
import org.apache.spark.sql.streaming.StreamingQueryProgress;
import org.junit.jupiter.api.Test;
import scala.Option;
import scala.collection.immutable.List$;

/** Tests that the queue counts the text of every record before the record's line exists. */
final class RecordSizesTest {
  private static final String LONG = String.join("", Collections.nCopies(60_000, "x"));
  private static final Option<String> NONE = Option.empty();
  /** Fields that no user sets, such as times, counters and the stack trace of this test. */
  private static final int FIXED = 12_000;

  private final Checks.Recorder destination = new Checks.Recorder(new SparkConf(false), end -> {});
  private final EventsListener listener = new EventsListener(new SparkConf(false), destination);

  private static Properties local() {
    Properties local = new Properties();
    local.setProperty("spark.job.description", LONG);
    local.setProperty("spark.jobGroup.id", LONG);
    local.setProperty("callSite.short", LONG);
    return local;
  }

  private void jobs() {
    listener.onApplicationStart(
        new SparkListenerApplicationStart(LONG, NONE, 1, "u", NONE, Option.empty(), Option.empty()));
    listener.onJobStart(new SparkListenerJobStart(1, 1, List$.MODULE$.empty(), local()));
    StageInfo stage =
        new StageInfo(
            1, 0, LONG, 1, List$.MODULE$.empty(), List$.MODULE$.empty(), "", null, List$.MODULE$.empty(),
            Option.empty(), 0, false, 0);
    listener.onStageSubmitted(new SparkListenerStageSubmitted(stage, local()));
    stage.failureReason_$eq(Option.apply(LONG));
    listener.onStageCompleted(new SparkListenerStageCompleted(stage));
    listener.onJobEnd(new SparkListenerJobEnd(1, 2, new JobFailed(new SparkException(LONG, new RuntimeException(LONG)))));
    listener.onExecutorRemoved(new SparkListenerExecutorRemoved(1, "1", LONG));
  }

  private void queries() {
    listener.onOtherEvent(
        new SparkListenerSQLExecutionStart(
            1, Option.apply((Object) 1L), LONG, "details", "plan", null, 5,
            scala.collection.immutable.Map$.MODULE$.empty(), scala.collection.immutable.Set$.MODULE$.empty(),
            Option.empty(), Option.empty()));
    listener.onOtherEvent(new SparkListenerSQLExecutionEnd(1, 9, Option.apply(LONG), Option.empty()));
    UUID run = new UUID(0, 1);
    listener.onOtherEvent(new QueryStartedEvent(run, run, LONG, "2026-01-01T00:00:00.000Z"));
    SourceProgress source =
        new SourceProgress(LONG, null, LONG, null, 1, 1, 1, Collections.singletonMap("lag", LONG));
    listener.onOtherEvent(
        new QueryProgressEvent(
            new StreamingQueryProgress(
                run, run, LONG, "2026-01-01T00:00:00.000Z", 7, 1, Collections.emptyMap(), Collections.emptyMap(),
                new StateOperatorProgress[0], new SourceProgress[] {source}, new SinkProgress(LONG),
                Collections.emptyMap())));
    listener.onOtherEvent(new QueryTerminatedEvent(run, run, Option.apply(LONG), Option.apply("X")));
  }

  @Test
  void theTextOfEveryKindOfRecordIsCounted() throws Exception {
    jobs();
    queries();
    List<String> wrong = new ArrayList<>();
    TreeSet<String> kinds = new TreeSet<>();
    for (Record record : destination.take()) {
      int counted = record.size();
      int length = record.line().length;
      kinds.add(record.kind);
      if (counted < (length - FIXED) * 2 / 3 || counted > length + FIXED) {
        wrong.add(record.kind + ": counted " + counted + ", written " + length);
      }
    }
    is(wrong, "[]");
    is(
        kinds,
        "[application_start, executor_removed, job_end, job_start, query_progress, query_started, query_terminated,"
            + " sql_execution_end, sql_execution_start, stage_completed, stage_submitted]");
  }

  /** A description has one limit, before the record waits in the queue. */
  @Test
  void aDescriptionHasOneLimit() throws Exception {
    jobs();
    queries();
    for (Record record : destination.take()) {
      if (record.kind.equals("job_start") || record.kind.equals("sql_execution_start")) {
        String line = new String(record.line(), StandardCharsets.UTF_8);
        String cut = "\\n... [" + (LONG.length() - Text.SHORT_LIMIT) + " characters cut]\"";
        String kept = LONG.substring(0, Text.SHORT_LIMIT) + cut;
        is(line.contains(kept), true);
      }
    }
  }

  /** 200 jobs with descriptions of 1 MB need little memory, and no record is dropped. */
  @Test
  void longDescriptionsDoNotFillTheMemory() throws Exception {
    RecordQueue queue = new RecordQueue(QueueConfig.of(1_024).withBytes(1 << 20));
    String longest = String.join("", Collections.nCopies(1 << 20, "x"));
    for (int job = 0; job < 200; job++) {
      Properties local = new Properties();
      local.setProperty("spark.job.description", longest + job);
      listener.onJobStart(new SparkListenerJobStart(job, 1, List$.MODULE$.empty(), local));
    }
    long counted = 0;
    for (Record record : destination.take()) {
      counted += record.size();
      queue.offer(record);
    }
    is(counted < (1 << 20) && counted > 200 * Text.SHORT_LIMIT, true);
    is(queue.size() + " " + queue.drops.total(), "200 0");
  }
}
