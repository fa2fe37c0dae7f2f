package io.sparkevents;

import static io.sparkevents.Checks.is;
import static io.sparkevents.HandoffQueueChecks.takeAll;

import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.UUID;
import org.apache.spark.SparkConf;
import org.apache.spark.scheduler.JobSucceeded$;
import org.apache.spark.scheduler.SparkListenerApplicationStart;
import org.apache.spark.scheduler.SparkListenerJobEnd;
import org.apache.spark.scheduler.SparkListenerJobStart;
import org.apache.spark.sql.streaming.StreamingQueryListener.QueryTerminatedEvent;
import scala.Option;
import scala.collection.immutable.List$;

/** What a sidecar that is started anew is told of the past. */
public final class ContextChecks {
  private static final Redaction REDACTION = new Redaction(Redaction.SPARK_DEFAULT);
  private static final Records RECORDS = new Records(new SparkConf(false), REDACTION, new JobProperties(REDACTION));

  static Record application() {
    return RECORDS.applicationStart(
        new SparkListenerApplicationStart("app", Option.apply("app-1"), 1, "ada", Option.empty(), Option.empty(), Option.empty()));
  }

  private static Record started(UUID run) {
    return StreamingRecords.running(run.toString(), run.toString(), null);
  }

  private static Record terminated(UUID run) {
    return StreamingRecords.of(new QueryTerminatedEvent(run, run, Option.empty(), Option.empty()));
  }

  private static Record jobStarted(int job) {
    return RECORDS.jobStart(new SparkListenerJobStart(job, 1, List$.MODULE$.empty(), new Properties()));
  }

  private static Record jobEnded(int job) {
    return RECORDS.jobEnd(new SparkListenerJobEnd(job, 2, JobSucceeded$.MODULE$));
  }

  /** Takes records in and lets the sidecar acknowledge them. */
  private static void happens(HandoffQueue queue, Record... records) throws Exception {
    for (Record record : records) {
      long seq = queue.offer(record);
      takeAll(queue);
      queue.acknowledge(seq);
    }
  }

  private static List<String> told(HandoffQueue queue) {
    List<String> kinds = new ArrayList<>();
    for (Record record : queue.rewind()) {
      kinds.add(record.kind);
    }
    return kinds;
  }

  /** However many queries have come and gone, and jobs of whose end Spark did not tell: never the application. */
  public static void checkTheApplicationIsNeverForgotten() throws Exception {
    HandoffQueue queue = new HandoffQueue(10, true);
    happens(queue, application());
    for (int i = 0; i < 3_000; i++) {
      UUID run = new UUID(0, i);
      happens(queue, started(run), terminated(run), jobStarted(i));
    }
    List<String> told = told(queue);
    is(told.get(0), "application_start");
    is(told.size() <= 2 * 2_000 + 1, true);
  }

  /** What is over makes room first, then jobs: a query that runs is known though it has been quiet for long. */
  public static void checkWhatIsOverIsForgottenFirst() throws Exception {
    HandoffQueue queue = new HandoffQueue(10, true);
    happens(queue, started(new UUID(1, 1)));
    for (int i = 0; i < 1_500; i++) {
      UUID run = new UUID(0, i);
      happens(queue, started(run), terminated(run));
    }
    for (int i = 0; i < 1_999; i++) {
      happens(queue, jobStarted(i));
    }
    List<String> told = told(queue);
    is(told.contains("query_terminated"), false);
    happens(queue, jobStarted(2_000));
    told = told(queue);
    is(told.get(0) + " " + told.get(1) + " " + told.size(), "query_started job_start 2000");
  }

  /** The query that has just ended is known, though nothing but queries that run and jobs can make room for it. */
  public static void checkTheLatestIsNotForgotten() throws Exception {
    HandoffQueue queue = new HandoffQueue(10, true);
    for (int i = 0; i < 2_000; i++) {
      happens(queue, jobStarted(i));
    }
    happens(queue, terminated(new UUID(0, 1)));
    List<String> told = told(queue);
    is(told.contains("query_terminated") + " " + told.size(), "true 2000");
  }

  /** Who is told what was there before it listened is told the application first, then its queries. */
  public static void checkTheApplicationComesFirst() throws Exception {
    HandoffQueue queue = new HandoffQueue(10, true);
    queue.know(application());
    queue.know(started(new UUID(0, 1)));
    is(told(queue), "[application_start, query_started]");
  }

  /** An end that was dropped is not undone by the beginning that is acknowledged after it. */
  public static void checkAnEndThatWasDroppedIsKnown() throws Exception {
    HandoffQueue queue = new HandoffQueue(2, true);
    UUID run = new UUID(0, 1);
    queue.offer(started(run));
    queue.take(new ArrayList<>(), 0); // 1 is being written
    queue.offer(terminated(run));
    queue.offer(started(new UUID(0, 2)));
    is(queue.dropped(), 1);
    queue.acknowledge(1);
    List<Record> known = new ArrayList<>(queue.rewind());
    is(known.get(0).kind + " " + known.get(0).seq(), "query_started 1");
    is(known.get(1).kind + " " + known.get(1).seq(), "query_terminated 2");
  }

  /** The same of a job: one whose end was dropped does not run for ever. */
  public static void checkAJobWhoseEndWasDroppedIsOver() throws Exception {
    HandoffQueue queue = new HandoffQueue(2, true);
    queue.offer(jobStarted(1));
    queue.take(new ArrayList<>(), 0); // 1 is being written
    queue.offer(jobEnded(1));
    queue.offer(application());
    is(queue.dropped(), 1);
    queue.acknowledge(1);
    is(told(queue), "[]");
  }
}
