package io.sparkevents;

import static io.sparkevents.Checks.is;
import static io.sparkevents.RecordQueueTest.takeAll;

import io.sparkevents.listener.ApplicationRecords;
import io.sparkevents.listener.JobProperties;
import io.sparkevents.listener.JobRecords;
import io.sparkevents.listener.Redaction;
import io.sparkevents.listener.StreamingRecords;
import io.sparkevents.queue.QueueConfig;
import io.sparkevents.queue.Record;
import io.sparkevents.queue.RecordQueue;
import io.sparkevents.queue.RestoreState;
import io.sparkevents.queue.Subject;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.UUID;
import org.apache.spark.SparkConf;
import org.apache.spark.scheduler.JobSucceeded$;
import org.apache.spark.scheduler.SparkListenerApplicationStart;
import org.apache.spark.scheduler.SparkListenerJobEnd;
import org.apache.spark.scheduler.SparkListenerJobStart;
import org.apache.spark.sql.streaming.StreamingQueryListener.QueryTerminatedEvent;
import org.junit.jupiter.api.Test;
import scala.Option;
import scala.collection.immutable.List$;

/** Tests of the state that a restarted sidecar receives. */
final class RestoreStateTest {
  private static final Redaction REDACTION = new Redaction(Redaction.SPARK_DEFAULT);

  // JUnit creates an instance for each test.
  private final JobRecords jobs = new JobRecords(record -> {}, false, new JobProperties(REDACTION));
  private final StreamingRecords streams = new StreamingRecords();

  static Record application() {
    return new ApplicationRecords(new SparkConf(false), REDACTION).applicationStart(
        new SparkListenerApplicationStart("app", Option.apply("app-1"), 1, "ada", Option.empty(), Option.empty(), Option.empty()));
  }

  private Record started(UUID run) {
    return streams.running(run.toString(), run.toString(), null);
  }

  private Record terminated(UUID run) {
    return streams.of(new QueryTerminatedEvent(run, run, Option.empty(), Option.empty()));
  }

  private Record jobStarted(int job) {
    return jobs.startRecord(new SparkListenerJobStart(job, 1, List$.MODULE$.empty(), new Properties()));
  }

  private Record jobEnded(int job) {
    return jobs.endRecord(new SparkListenerJobEnd(job, 2, JobSucceeded$.MODULE$), null, null);
  }

  /** Offers records and acknowledges them. */
  private static void happens(RecordQueue queue, Record... records) throws Exception {
    for (Record record : records) {
      long seq = queue.offer(record);
      takeAll(queue);
      queue.acknowledge(seq);
    }
  }

  private static List<String> restored(RecordQueue queue) {
    List<String> kinds = new ArrayList<>();
    for (Record record : queue.rewind()) {
      kinds.add(record.kind);
    }
    return kinds;
  }

  /** The application is never removed, however many queries and unfinished jobs exist. */
  @Test
  void theApplicationIsNeverForgotten() throws Exception {
    RecordQueue queue = new RecordQueue(QueueConfig.of(10));
    happens(queue, application());
    for (int i = 0; i < 3_000; i++) {
      UUID run = new UUID(0, i);
      happens(queue, started(run), terminated(run), jobStarted(i));
    }
    List<String> restored = restored(queue);
    is(restored.get(0), "application_start");
    is(restored.size() <= 2 * 2_000 + 1, true);
  }

  /** Ended runs are removed first, then jobs. A running query is kept, even after a long time without events. */
  @Test
  void endedRunsAreRemovedFirst() throws Exception {
    RecordQueue queue = new RecordQueue(QueueConfig.of(10));
    happens(queue, started(new UUID(1, 1)));
    for (int i = 0; i < 1_500; i++) {
      UUID run = new UUID(0, i);
      happens(queue, started(run), terminated(run));
    }
    for (int i = 0; i < 1_999; i++) {
      happens(queue, jobStarted(i));
    }
    List<String> restored = restored(queue);
    is(restored.contains("query_terminated"), false);
    happens(queue, jobStarted(2_000));
    restored = restored(queue);
    is(restored.get(0) + " " + restored.get(1) + " " + restored.size(), "query_started job_start 2000");
  }

  /** Ended runs together keep a limited number of bytes; the run that ended last is kept whatever its size. */
  @Test
  void endedRunsAreLimitedInBytes() throws Exception {
    RecordQueue queue = new RecordQueue(QueueConfig.of(10));
    happens(queue, application(), started(new UUID(1, 1)), StreamingRecordsTest.progress(streams, new UUID(1, 1), 100_000));
    for (int i = 0; i < 200; i++) {
      UUID run = new UUID(0, i);
      happens(queue, started(run), StreamingRecordsTest.progress(streams, run, 60_000), terminated(run));
    }
    long bytes = 0;
    for (Record record : queue.rewind()) {
      bytes += record.size();
    }
    is(bytes > 3_000_000 && bytes < 5_000_000, true);
    is(restored(queue).subList(0, 4), "[application_start, query_started, query_progress, query_started]");
    UUID large = new UUID(0, 200);
    happens(queue, started(large), StreamingRecordsTest.progress(streams, large, 6_000_000), terminated(large));
    String kinds = "application_start, query_started, query_progress, query_started, query_progress, query_terminated";
    is(restored(queue), "[" + kinds + "]");
  }

  /** The query that ended last is kept, even if running queries and jobs must be removed. */
  @Test
  void theLastEndedQueryStays() throws Exception {
    RecordQueue queue = new RecordQueue(QueueConfig.of(10));
    for (int i = 0; i < 2_000; i++) {
      happens(queue, jobStarted(i));
    }
    happens(queue, terminated(new UUID(0, 1)));
    List<String> restored = restored(queue);
    is(restored.contains("query_terminated") + " " + restored.size(), "true 2000");
  }

  /** A listener that is added later receives the application first, followed by its queries. */
  @Test
  void theApplicationComesFirst() throws Exception {
    RecordQueue queue = new RecordQueue(QueueConfig.of(10));
    queue.know(application());
    queue.know(started(new UUID(0, 1)));
    is(restored(queue), "[application_start, query_started]");
  }

  /** If the end of a query is dropped before the start is acknowledged, the restored query has ended. */
  @Test
  void aDroppedEndIsNotUndone() throws Exception {
    RecordQueue queue = new RecordQueue(QueueConfig.of(2));
    UUID run = new UUID(0, 1);
    queue.offer(started(run));
    queue.take(new ArrayList<>(), 0); // record 1 is being written
    queue.offer(terminated(run));
    queue.offer(started(new UUID(0, 2)));
    is(queue.drops.total(), 1);
    queue.acknowledge(1);
    List<Record> known = new ArrayList<>(queue.rewind());
    is(known.get(0).kind + " " + known.get(0).seq(), "query_started 1");
    is(known.get(1).kind + " " + known.get(1).seq(), "query_terminated 2");
  }

  /** A job is not restored as running if the record of its end was dropped. */
  @Test
  void aJobWhoseEndWasDroppedIsOver() throws Exception {
    RecordQueue queue = new RecordQueue(QueueConfig.of(2));
    queue.offer(jobStarted(1));
    queue.take(new ArrayList<>(), 0); // record 1 is being written
    queue.offer(jobEnded(1));
    queue.offer(application());
    is(queue.drops.total(), 1);
    queue.acknowledge(1);
    is(restored(queue), "[]");
  }

  /** In any order of records, a subject has the newest record of each kind since its newest end. */
  @Test
  void theStateDoesNotDependOnTheOrder() {
    Record.Rank[] ranks = Record.Rank.values();
    for (int seed = 0; seed < 50; seed++) {
      Random random = new Random(seed);
      Subject[] subjects = new Subject[20];
      Arrays.setAll(subjects, i -> new Subject());
      List<Record> records = new ArrayList<>();
      for (int seq = 1; seq <= 500; seq++) {
        Subject subject = subjects[random.nextInt(subjects.length)];
        Record.Change keep = Record.Change.keep(subject, ranks[random.nextInt(3)]);
        Record.Change change = random.nextInt(seed % 5 + 3) == 0 ? Record.Change.forget(subject) : keep;
        records.add(new Record("kind " + random.nextInt(3), Record.Priority.ROUTINE, change, json -> {}));
        records.get(seq - 1).assign(seq);
      }
      List<Record> expected = new ArrayList<>();
      for (Record record : records) {
        expected.removeIf(
            other ->
                other.subject == record.subject
                    && (record.rank == null || other.kind.equals(record.kind)));
        if (record.rank != null) {
          expected.add(record);
        }
      }
      Collections.shuffle(records, random);
      RestoreState state = new RestoreState();
      records.forEach(state::apply);
      is(seqs(state.records()), seqs(expected));
    }
  }

  private static List<Long> seqs(Collection<Record> records) {
    List<Long> seqs = new ArrayList<>();
    records.forEach(record -> seqs.add(record.seq()));
    return seqs;
  }

  /** Beyond the limit, the state keeps 2,000 subjects: those of the highest ranks, the most recently updated. */
  @Test
  void theNumberOfSubjectsIsLimited() {
    Record.Rank[] ranks = {Record.Rank.OVER, Record.Rank.WORK, Record.Rank.RUN};
    Random random = new Random(1);
    RestoreState state = new RestoreState();
    List<Subject> model = new ArrayList<>(); // the most recently updated subject is the last one
    Map<Subject, Record.Rank> ranked = new HashMap<>();
    Subject[] subjects = new Subject[3_000];
    Arrays.setAll(subjects, i -> new Subject());
    for (int seq = 1; seq <= 6_000; seq++) {
      Subject subject = subjects[random.nextInt(subjects.length)];
      Record.Rank rank = ranks[random.nextInt(3)];
      Record record = new Record("kind", Record.Priority.ROUTINE, Record.Change.keep(subject, rank), json -> {});
      record.assign(seq);
      state.apply(record);
      model.remove(subject);
      model.add(subject);
      ranked.put(subject, rank);
      if (model.size() > 2_000) {
        Comparator<Subject> byRank = Comparator.comparing(ranked::get);
        model.remove(model.stream().filter(one -> one != subject).min(byRank).get());
      }
    }
    Set<Subject> kept = new HashSet<>();
    state.records().forEach(record -> kept.add(record.subject));
    is(kept.equals(new HashSet<>(model)) + " " + kept.size(), "true 2000");
  }
}
