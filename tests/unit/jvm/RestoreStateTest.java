package io.sparkevents;

import static io.sparkevents.Checks.is;
import static io.sparkevents.HandoffQueueTest.takeAll;

import io.sparkevents.listener.JobProperties;
import io.sparkevents.listener.Records;
import io.sparkevents.listener.Redaction;
import io.sparkevents.listener.StreamingRecords;
import io.sparkevents.queue.HandoffQueue;
import io.sparkevents.queue.Priority;
import io.sparkevents.queue.Record;
import io.sparkevents.queue.RestoreState;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;
import java.util.UUID;
import java.util.stream.Collectors;
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

  /** Offers records and acknowledges them. */
  private static void happens(HandoffQueue queue, Record... records) throws Exception {
    for (Record record : records) {
      long seq = queue.offer(record);
      takeAll(queue);
      queue.acknowledge(seq);
    }
  }

  private static List<String> restored(HandoffQueue queue) {
    List<String> kinds = new ArrayList<>();
    for (Record record : queue.rewind()) {
      kinds.add(record.kind);
    }
    return kinds;
  }

  /** The application is never removed, whatever the number of queries and unfinished jobs. */
  @Test
  void theApplicationIsNeverForgotten() throws Exception {
    HandoffQueue queue = new HandoffQueue(10, true);
    happens(queue, application());
    for (int i = 0; i < 3_000; i++) {
      UUID run = new UUID(0, i);
      happens(queue, started(run), terminated(run), jobStarted(i));
    }
    List<String> restored = restored(queue);
    is(restored.get(0), "application_start");
    is(restored.size() <= 2 * 2_000 + 1, true);
  }

  /** Ended runs are removed first, then jobs; a running query stays, even after a long time without events. */
  @Test
  void endedRunsAreRemovedFirst() throws Exception {
    HandoffQueue queue = new HandoffQueue(10, true);
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

  /** The query that ended last stays, even if only running queries and jobs could make room for it. */
  @Test
  void theLastEndedQueryStays() throws Exception {
    HandoffQueue queue = new HandoffQueue(10, true);
    for (int i = 0; i < 2_000; i++) {
      happens(queue, jobStarted(i));
    }
    happens(queue, terminated(new UUID(0, 1)));
    List<String> restored = restored(queue);
    is(restored.contains("query_terminated") + " " + restored.size(), "true 2000");
  }

  /** A listener that was added later gets the application first, then its queries. */
  @Test
  void theApplicationComesFirst() throws Exception {
    HandoffQueue queue = new HandoffQueue(10, true);
    queue.know(application());
    queue.know(started(new UUID(0, 1)));
    is(restored(queue), "[application_start, query_started]");
  }

  /** A dropped end is not undone by the beginning that is acknowledged after it. */
  @Test
  void aDroppedEndIsNotUndone() throws Exception {
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

  /** A job whose end was dropped does not run forever. */
  @Test
  void aJobWhoseEndWasDroppedIsOver() throws Exception {
    HandoffQueue queue = new HandoffQueue(2, true);
    queue.offer(jobStarted(1));
    queue.take(new ArrayList<>(), 0); // 1 is being written
    queue.offer(jobEnded(1));
    queue.offer(application());
    is(queue.dropped(), 1);
    queue.acknowledge(1);
    is(restored(queue), "[]");
  }

  /** Reference model: a list that is searched. */
  private static final class Plain {
    private static final int LIMIT = 2_000;
    /** In the order of their last update. */
    private final LinkedHashMap<String, List<Record>> known = new LinkedHashMap<>();
    private final LinkedHashSet<String> endedEarly = new LinkedHashSet<>();

    void apply(Record record, String subject) {
      List<Record> before = known.remove(subject);
      if (record.change.rank == null) {
        if (before == null) {
          endedEarly.add(subject);
          if (endedEarly.size() > LIMIT) {
            endedEarly.remove(endedEarly.iterator().next());
          }
        }
        return;
      }
      if (endedEarly.remove(subject)) {
        return;
      }
      List<Record> now = new ArrayList<>();
      boolean outdated = false;
      for (Record other : before == null ? Collections.<Record>emptyList() : before) {
        boolean newer = other.seq() > record.seq();
        boolean same = other.kind.equals(record.kind);
        outdated |= newer && same;
        if (newer || outdated || !(same || record.change.begins)) {
          now.add(other);
        }
      }
      if (!outdated) {
        now.add(record);
      }
      known.put(subject, now);
      if (known.size() > LIMIT
          && known.values().stream().filter(one -> rank(one) != RestoreState.Rank.APPLICATION).count() > LIMIT) {
        for (RestoreState.Rank rank : RestoreState.Rank.values()) {
          Optional<String> eldest =
              known.entrySet().stream().filter(one -> rank(one.getValue()) == rank).map(Map.Entry::getKey).findFirst();
          if (eldest.isPresent() && !eldest.get().equals(subject)) {
            known.remove(eldest.get());
            return;
          }
        }
      }
    }

    private static RestoreState.Rank rank(List<Record> records) {
      return records.stream().map(one -> one.change.rank).min(Comparator.naturalOrder()).get();
    }

    Set<Long> numbers() {
      return known.values().stream().flatMap(List::stream).map(Record::seq).collect(Collectors.toCollection(TreeSet::new));
    }
  }

  /** The state equals the reference model for random subjects and orders. */
  @Test
  void theStateEqualsTheReferenceModel() {
    RestoreState.Rank[] ranks = RestoreState.Rank.values();
    for (int seed = 0; seed < 10; seed++) {
      Random random = new Random(seed);
      // A few subjects collide often; many exceed the limit.
      int subjects = seed % 5 == 0 ? 3_000 : 20;
      RestoreState context = new RestoreState();
      Plain plain = new Plain();
      for (int n = 1; n <= 6_000; n++) {
        String subject = String.valueOf(random.nextInt(subjects));
        RestoreState.Rank rank = ranks[random.nextInt(20) == 0 ? 3 : random.nextInt(3)];
        int what = random.nextInt(seed % 3 == 0 ? 3 : 30);
        RestoreState.Change change =
            what == 0
                ? RestoreState.Change.forget(subject)
                : what == 1 ? RestoreState.Change.begin(subject, rank) : RestoreState.Change.add(subject, rank);
        Record record = new Record("kind " + random.nextInt(3), Priority.ROUTINE, change, json -> {});
        // Some records arrive late.
        record.assign(random.nextInt(4) == 0 ? n * 10L - random.nextInt(2_000) : n * 10L);
        context.apply(record);
        plain.apply(record, subject);
      }
      Set<Long> numbers = context.records().stream().map(Record::seq).collect(Collectors.toCollection(TreeSet::new));
      is(numbers, plain.numbers());
      is(numbers.size() > 10, true);
    }
  }
}
