package io.sparkevents;

import static io.sparkevents.Checks.is;
import static io.sparkevents.Checks.start;
import static io.sparkevents.Checks.takesAtMost;

import com.sun.management.ThreadMXBean;
import io.sparkevents.config.Settings;
import io.sparkevents.listener.AddedEvent;
import io.sparkevents.listener.ApplicationRecords;
import io.sparkevents.queue.DropCounters;
import io.sparkevents.queue.QueueConfig;
import io.sparkevents.queue.Record;
import io.sparkevents.queue.RecordQueue;
import io.sparkevents.queue.Subject;
import io.sparkevents.queue.SyncBarrier;
import io.sparkevents.queue.Timeout;
import io.sparkevents.wire.RecordWriter;
import java.io.ByteArrayOutputStream;
import java.lang.management.ManagementFactory;
import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.SparkConf;
import org.junit.jupiter.api.Test;

/** Tests of the queue between Spark's listener thread and the writer thread. */
final class RecordQueueTest {
  static Record routine() {
    return new Record("routine", Record.Priority.ROUTINE, json -> {});
  }

  static Record lifecycle() {
    return new Record("lifecycle", Record.Priority.LIFECYCLE, json -> {});
  }

  static List<Record> take(RecordQueue queue) throws InterruptedException {
    List<Record> taken = new ArrayList<>();
    queue.take(taken, 0);
    return taken;
  }

  static List<Record> takeAll(RecordQueue queue) throws InterruptedException {
    List<Record> all = new ArrayList<>();
    for (List<Record> some = take(queue); !some.isEmpty(); some = take(queue)) {
      all.addAll(some);
    }
    return all;
  }

  private static void offerRoutine(RecordQueue queue, int count) {
    for (int i = 0; i < count; i++) {
      queue.offer(routine());
    }
  }

  /** Offers each record and takes it before the next offer; afterwards, all records are sent. */
  private static void sendEach(RecordQueue queue, int count) throws InterruptedException {
    for (int i = 0; i < count; i++) {
      queue.offer(routine());
      take(queue);
    }
    take(queue);
  }

  static RecordWriter writer(RecordQueue queue) {
    Settings settings = Settings.read(new SparkConf(false), Collections.emptyMap());
    return new RecordWriter(settings, "app", queue, new Timeout());
  }

  static String kinds(List<Record> records) {
    StringBuilder text = new StringBuilder();
    for (Record record : records) {
      text.append(record.kind.charAt(0)).append(record.seq()).append(' ');
    }
    return text.toString().trim();
  }

  private static String counts(Record account) {
    return ((DropCounters.Account) account).where + " " + ((DropCounters.Account) account).counts;
  }

  /**
   * With several producers, a writer and an acknowledger, the queue stays within its capacity and in order, and each
   * record is delivered or counted.
   */
  @Test
  void concurrentUseLosesNoRecord() throws Exception {
    int capacity = 50;
    RecordQueue queue = new RecordQueue(QueueConfig.of(capacity));
    AtomicBoolean running = new AtomicBoolean(true);
    AtomicBoolean writing = new AtomicBoolean(true);
    AtomicLong offered = new AtomicLong();
    ConcurrentLinkedQueue<Throwable> wrong = new ConcurrentLinkedQueue<>();
    ConcurrentLinkedQueue<Long> written = new ConcurrentLinkedQueue<>();
    Set<Long> delivered = Collections.synchronizedSet(new TreeSet<>());
    List<Thread> producers = new ArrayList<>();
    for (int i = 0; i < 2; i++) {
      Random random = new Random(i);
      producers.add(
          start(
              wrong,
              () -> {
                for (int n = 0; n < 60_000; n++) {
                  queue.offer(random.nextInt(4) == 0 ? lifecycle() : routine());
                  offered.incrementAndGet();
                  if (queue.size() > capacity) {
                    throw new AssertionError("holds " + queue.size());
                  }
                }
              }));
    }
    AtomicLong accounts = new AtomicLong();
    Thread writer =
        start(
            wrong,
            () -> {
              Random random = new Random(7);
              long last = 0;
              while (running.get() || queue.hasPending()) {
                List<Record> some = new ArrayList<>();
                queue.take(some, 5);
                for (Record record : some) {
                  if (record.seq() <= last) {
                    throw new AssertionError(record.seq() + " after " + last);
                  }
                  last = record.seq();
                  if (record.priority == Record.Priority.ACCOUNT) {
                    accounts.incrementAndGet();
                  }
                  written.add(record.seq());
                }
                if (random.nextInt(200) == 0) {
                  Thread.sleep(1);
                }
              }
            });
    Thread acknowledger =
        start(
            wrong,
            () -> {
              while (writing.get() || !written.isEmpty()) {
                Long seq = written.poll();
                if (seq == null) {
                  Thread.yield();
                } else {
                  delivered.add(seq);
                  queue.acknowledge(seq);
                }
              }
            });
    for (Thread producer : producers) {
      producer.join();
    }
    queue.finish();
    running.set(false);
    writer.join();
    // The flag is cleared only here, because {@code written} may be empty for a moment while the writer runs.
    writing.set(false);
    acknowledger.join();
    is(wrong, "[]");
    is(queue.size(), 0);
    is(delivered.size() - accounts.get() + queue.drops.total(), offered.get());
  }

  /**
   * For random calls, and deaths of the sidecar, each record is acknowledged, counted as dropped, or held; each drop is
   * reported once; and no share of the queue remains in use when all records are acknowledged.
   */
  @Test
  void everyRecordIsAccountedFor() throws Exception {
    for (int seed = 0; seed < 300; seed++) {
      Random random = new Random(seed);
      int capacity = 1 + random.nextInt(40);
      RecordQueue queue = new RecordQueue(QueueConfig.of(capacity).withBytes(2_000));
      List<Record> written = new ArrayList<>(); // by the current sidecar
      Set<Record> acknowledged = new HashSet<>();
      int offered = 0;
      for (int step = 0; step < 400; step++) {
        switch (random.nextInt(6)) {
          case 0:
          case 1:
            queue.offer(random.nextInt(5) == 0 ? large(random.nextInt(5_000)) : routine());
            offered++;
            break;
          case 2:
            queue.offer(lifecycle());
            offered++;
            break;
          case 3:
            for (Record record : take(queue)) {
              if (record.priority == Record.Priority.LIFECYCLE && random.nextInt(10) == 0) {
                queue.dropUnwritable(record);
              } else {
                record.line();
                written.add(record);
              }
            }
            break;
          case 4:
            acknowledgeSome(queue, written, acknowledged, random.nextInt(written.size() + 1));
            break;
          default:
            if (random.nextInt(10) == 0) {
              written.clear(); // the sidecar has died
              queue.rewind();
            }
        }
        is(queue.size() <= capacity, true);
        is(queue.usage.usedFraction() >= 0 && queue.usage.usedFraction() <= 1, true);
      }
      queue.finish();
      while (queue.size() > 0 || !written.isEmpty() || !queue.drops.unreported().isEmpty()) {
        for (Record record : take(queue)) {
          record.line();
          written.add(record);
        }
        acknowledgeSome(queue, written, acknowledged, written.size());
      }
      is(queue.size() + " " + queue.usage.usedFraction() + " " + queue.progress.hasStalledFor(0), "0 0.0 false");
      long reported = 0;
      long accounts = 0;
      for (Record record : acknowledged) {
        if (record instanceof DropCounters.Account) {
          accounts++;
          for (long count : ((DropCounters.Account) record).counts.values()) {
            reported += count;
          }
        }
      }
      is(acknowledged.size() - accounts + queue.drops.total(), offered);
      is(reported + " " + queue.drops.unreported(), queue.drops.total() + " {}");
    }
  }

  /** Acknowledges the oldest of the written records. */
  private static void acknowledgeSome(RecordQueue queue, List<Record> written, Set<Record> acknowledged, int count) {
    if (count > 0) {
      List<Record> oldest = written.subList(0, count);
      queue.acknowledge(oldest.get(count - 1).seq());
      acknowledged.addAll(oldest);
      oldest.clear();
    }
  }

  /** A full queue drops the oldest routine record first. Only lifecycle records replace lifecycle records. */
  @Test
  void aFullQueueDropsTheLowestPriorityFirst() throws Exception {
    RecordQueue queue = new RecordQueue(QueueConfig.of(3));
    queue.offer(lifecycle());
    queue.offer(routine());
    queue.offer(routine());
    queue.offer(routine()); // drops record 2
    queue.offer(lifecycle()); // drops record 3
    queue.offer(lifecycle()); // drops record 4
    is(queue.offer(routine()), 0); // the new record itself is dropped
    queue.offer(lifecycle()); // drops record 1
    is(queue.drops.total(), 5);
    queue.finish();
    is(kinds(takeAll(queue)), "l5 l6 l8 d9");
  }

  /** The listener thread allocates nothing for a drop, whatever the record changes in the restore state. */
  @Test
  void aDropAllocatesNothing() throws Exception {
    RecordQueue queue = new RecordQueue(QueueConfig.of(64));
    ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
    int count = 20_000;
    List<Record> records = new ArrayList<>();
    for (int i = 0; i < 3 * count; i += 3) {
      Subject job = new Subject();
      Record.Change start = Record.Change.keep(job, Record.Rank.WORK);
      records.add(new Record("start", Record.Priority.ROUTINE, start, json -> {}, 100));
      records.add(new Record("status", Record.Priority.ROUTINE, json -> {}));
      records.add(new Record("end", Record.Priority.ROUTINE, Record.Change.forget(job), json -> {}));
    }
    for (Record record : records.subList(0, 1_000)) {
      queue.offer(record);
    }
    long before = threads.getThreadAllocatedBytes(Thread.currentThread().getId());
    for (int i = 1_000; i < records.size(); i++) {
      queue.offer(records.get(i));
    }
    long allocated = threads.getThreadAllocatedBytes(Thread.currentThread().getId()) - before;
    is(queue.drops.total(), records.size() - 64);
    is(allocated / count, 0);
  }

  /** A full queue evicts written records before it drops unwritten records. A record that is being written is kept. */
  @Test
  void writtenRecordsAreEvictedFirst() throws Exception {
    RecordQueue queue = new RecordQueue(QueueConfig.of(2));
    queue.offer(routine());
    queue.offer(routine());
    is(kinds(take(queue)), "r1");
    is(kinds(take(queue)), "r2"); // so record 1 is written
    queue.offer(routine());
    is(queue.drops.total(), 0);
    queue.offer(routine()); // record 2 is being written, so record 3 is dropped
    is(queue.drops.total(), 1);
    is(queue.size(), 2);
  }

  /** The writer keeps an eighth of the queue free, so that offers do not evict. */
  @Test
  void theWriterKeepsSpaceFree() throws Exception {
    RecordQueue queue = new RecordQueue(QueueConfig.of(64));
    offerRoutine(queue, 64);
    takeAll(queue);
    is(queue.size(), 56);
    queue.rewind();
    is(queue.drops.total(), 8); // the evicted records
    is(takeAll(queue).size(), 57); // with the report of the drops
  }

  private static Record large(int bytes) {
    char[] text = new char[bytes];
    Arrays.fill(text, 'x');
    return new AddedEvent("{\"t\":\"" + new String(text) + "\"}").record();
  }

  /** At the limit of bytes, large records are evicted or dropped, even if the queue has room for more records. */
  @Test
  void largeRecordsAreLimitedByBytes() throws Exception {
    RecordQueue queue = new RecordQueue(QueueConfig.of(1_024).withBytes(10_000));
    for (int i = 0; i < 30; i++) {
      queue.offer(large(1_000)); // 19 such records fit into 20,000 bytes
    }
    queue.offer(routine());
    is(queue.drops.total(), 11);
    is(queue.offer(large(50_000)), 0); // exceeds the limit alone
    is(queue.drops.total() + " " + queue.size(), "12 20");
    queue.offer(large(19_500)); // drops all other large records, because their priority is not higher
    is(queue.size(), 1);
    offerRoutine(queue, 5);
    is(queue.size(), 6);
    for (Record record : takeAll(queue)) {
      record.line();
    }
    take(queue);
    is(queue.size() < 8, true);
    queue.acknowledge(1_000);
    long before = queue.drops.total();
    for (int i = 0; i < 40; i++) {
      queue.offer(large(1_000));
      for (Record record : take(queue)) {
        record.line();
      }
    }
    take(queue);
    is(queue.size() <= 10, true);
    is(queue.drops.total(), before);
    queue.rewind();
    is(takeAll(queue).size() > 8, true);
  }

  /**
   * When a sidecar dies, only evicted records that the sidecar had not acknowledged are lost and counted; other records
   * are resent.
   */
  @Test
  void aDeathCostsOnlyEvictedRecords() throws Exception {
    RecordQueue queue = new RecordQueue(QueueConfig.of(2));
    for (int i = 0; i < 4; i++) {
      queue.offer(routine());
      take(queue);
      take(queue);
    }
    queue.acknowledge(1);
    queue.rewind();
    is(queue.drops.total(), 1); // record 2; record 1 was acknowledged, records 3 and 4 are still queued
    queue.finish();
    is(kinds(takeAll(queue)), "r3 r4 d5");
  }

  /** Dropped records are reported immediately, later at intervals, and finally before the application's end. */
  @Test
  void dropsAreReportedAtIntervals() throws Exception {
    RecordQueue queue = new RecordQueue(QueueConfig.of(1));
    offerRoutine(queue, 3);
    List<Record> taken = takeAll(queue);
    is(kinds(taken), "r3 d4");
    is(counts(taken.get(1)), "handoff {routine=2}");
    String line = new String(taken.get(1).line(), "UTF-8");
    is(line.contains("\"where\":\"handoff\",\"records\":{\"routine\":2}"), true);
    offerRoutine(queue, 3);
    is(kinds(takeAll(queue)), "r7");
    queue.drops.count("elsewhere", "thing", 5);
    queue.finish();
    is(kinds(takeAll(queue)), "d8 d9");
    is(queue.drops.total(), 9);
    is(queue.drops.unreported(), "{}");
  }

  /** A report of dropped records is resent if its sidecar dies. */
  @Test
  void anAccountIsResentAfterADeath() throws Exception {
    RecordQueue queue = withSentAccount();
    queue.rewind();
    is(kinds(takeAll(queue)).endsWith("d3"), true);
  }

  /** Returns a queue whose record 2 and whose account of the dropped record 1 are sent and not acknowledged. */
  private static RecordQueue withSentAccount() throws Exception {
    RecordQueue queue = new RecordQueue(QueueConfig.of(1));
    queue.offer(routine());
    queue.offer(routine());
    is(kinds(takeAll(queue)), "r2 d3");
    return queue;
  }

  /** After close(), the counts of an unacknowledged report of drops are unreported again. */
  @Test
  void anUnacknowledgedAccountIsUnreportedAfterClose() throws Exception {
    RecordQueue queue = withSentAccount();
    queue.rewind();
    queue.close();
    is(queue.drops.unreported(), "{routine=2}");
  }

  /** A record whose size cannot be computed stays in the queue. */
  @Test
  void aRecordWithoutASizeStaysInTheQueue() throws Exception {
    RecordQueue queue = new RecordQueue(QueueConfig.of(10));
    AtomicBoolean fails = new AtomicBoolean();
    queue.offer(
        new Record("heavy", Record.Priority.ROUTINE, json -> {}) {
          @Override
          public int size() {
            if (fails.getAndSet(false)) {
              throw new OutOfMemoryError("for a moment");
            }
            return super.size();
          }
        });
    fails.set(true);
    try {
      take(queue);
      throw new AssertionError("the record was taken");
    } catch (OutOfMemoryError memory) {
      is(kinds(takeAll(queue)), "h1");
    }
  }

  /** After close, the counts of a sent account are unreported again, and the account is not an unconfirmed record. */
  @Test
  void aSentAccountIsUnreportedAfterClose() throws Exception {
    RecordQueue queue = withSentAccount();
    queue.close();
    is(queue.drops.unreported(), "{routine=1, unconfirmed=1}");
  }

  /** A wake-up before the wait is not lost, and each kind of wake-up ends a wait. */
  @Test
  void noWakeUpIsLost() throws Exception {
    RecordQueue queue = new RecordQueue(QueueConfig.of(10));
    queue.writer.wake();
    takesAtMost(30_000, () -> queue.take(new ArrayList<>(), 60_000));
    Checks.Work loss = () -> queue.drops.count("elsewhere", "thing", 1);
    Checks.Work record = () -> queue.offer(routine());
    for (Checks.Work wake : Arrays.<Checks.Work>asList(queue.writer::wake, record, loss, queue::finish)) {
      Thread writer = start(new ConcurrentLinkedQueue<>(), () -> queue.take(new ArrayList<>(), 60_000));
      while (writer.getState() != Thread.State.TIMED_WAITING && writer.isAlive()) {
        Thread.yield();
      }
      wake.run();
      takesAtMost(30_000, writer::join);
    }
  }

  /** close() releases every waiting thread. */
  @Test
  void closeReleasesAll() throws Exception {
    RecordQueue queue = new RecordQueue(QueueConfig.of(10));
    SyncBarrier barrier = new SyncBarrier(Settings.read(new SparkConf(false), Collections.emptyMap()), queue, () -> false);
    long seq = queue.offer(routine());
    ConcurrentLinkedQueue<Throwable> wrong = new ConcurrentLinkedQueue<>();
    Thread one = start(wrong, () -> is(barrier.awaitAnswered(seq, 60_000), false));
    Thread other = start(wrong, () -> queue.awaitWritten(60_000));
    queue.close();
    takesAtMost(30_000, one::join);
    takesAtMost(30_000, other::join);
    is(wrong, "[]");
    is(queue.offer(routine()), 0);
    is(queue.drops.unreported(), "{routine=2}");
  }

  /** A record after the application's end does not count as lost, unless the queue was already closed. */
  @Test
  void recordsAfterTheEndAreNotCounted() throws Exception {
    RecordQueue queue = new RecordQueue(QueueConfig.of(10));
    queue.offer(lifecycle());
    queue.finish();
    is(kinds(takeAll(queue)), "l1");
    queue.acknowledge(1);
    queue.close();
    is(queue.offer(routine()), 0);
    is(queue.drops.total() + " " + queue.drops.unreported(), "0 {}");
    RecordQueue abandoned = new RecordQueue(QueueConfig.of(10));
    abandoned.close();
    abandoned.offer(lifecycle());
    abandoned.finish();
    is(abandoned.drops.unreported(), "{lifecycle=1}");
  }

  /** Records after the application's end are rejected, so they need no further sidecar. */
  @Test
  void recordsAfterTheEndAreRejected() throws Exception {
    RecordQueue queue = new RecordQueue(QueueConfig.of(10));
    queue.offer(lifecycle());
    queue.finish();
    is(kinds(takeAll(queue)) + " " + queue.isFinished(), "l1 true"); // the writer then sends the goodbye message
    is(queue.offer(ApplicationRecords.jvmShutdown()), 0);
    queue.acknowledge(1);
    is(queue.size() + " " + queue.drops.total(), "0 0");
  }

  /** If an evicted report of drops is lost with its sidecar, all counts of the report are reported again. */
  @Test
  void anEvictedAccountIsReportedAgain() throws Exception {
    RecordQueue queue = new RecordQueue(QueueConfig.of(1));
    offerRoutine(queue, 6);
    is(kinds(takeAll(queue)), "r6 d7"); // record 7 reports five drops and evicts record 6
    queue.offer(routine()); // evicts record 7, too
    is(kinds(takeAll(queue)), "r8");
    queue.rewind();
    is(queue.drops.total(), 6);
    queue.finish();
    is(kinds(take(queue)), "r8");
    is(counts(take(queue).get(0)), "sidecar {routine=1}");
    is(counts(take(queue).get(0)), "handoff {routine=5}");
  }

  /** A record releases its captured values after creating its line, and keeps the line. */
  @Test
  void aRecordReleasesItsCapturedValues() throws Exception {
    Object[] held = {new byte[1]};
    WeakReference<Object> seen = new WeakReference<>(held[0]);
    Record record = holding(held[0]);
    byte[] line = record.line();
    held[0] = null;
    for (int i = 0; i < 100 && seen.get() != null; i++) {
      System.gc();
    }
    is(seen.get(), null);
    is(record.line() == line, true);
  }

  private static Record holding(Object one) {
    return new Record("holding", Record.Priority.ROUTINE, json -> json.writeStringField("one", one.getClass().getName()));
  }

  /** When a sidecar dies, all its evicted records are counted. */
  @Test
  void allEvictedRecordsAreCounted() throws Exception {
    RecordQueue queue = new RecordQueue(QueueConfig.of(2));
    for (int i = 0; i < 3; i++) {
      queue.offer(lifecycle());
    }
    takeAll(queue);
    sendEach(queue, 3_000);
    queue.rewind();
    // One record was dropped because the queue was full. The two queued records are resent.
    is(queue.drops.total(), 1 + 2 + 3_000 - 2);
    queue.close();
    is(queue.drops.unreported(), "{lifecycle=3, routine=3000}");
  }

  /** Acknowledged records are not counted as lost, even if they were evicted. */
  @Test
  void acknowledgedRecordsAreNotCounted() throws Exception {
    RecordQueue queue = new RecordQueue(QueueConfig.of(2));
    sendEach(queue, 3_000);
    queue.acknowledge(2_990);
    queue.rewind();
    is(queue.drops.total(), 8);
  }

  /** A sidecar is stalled if it reads nothing while a record is queued. The timeout restarts with a new sidecar. */
  @Test
  void aStallNeedsAnUnreadRecord() throws Exception {
    RecordQueue queue = new RecordQueue(QueueConfig.of(10));
    is(queue.progress.hasStalledFor(0), false);
    queue.offer(routine());
    is(queue.progress.hasStalledFor(0) + " " + queue.progress.hasStalledFor(600_000), "true false");
    take(queue);
    is(queue.progress.hasStalledFor(0), true); // the record is written, but not read
    queue.progress.read(1);
    is(queue.progress.hasStalledFor(0), false); // no stall: the record is read, and a reporter may be unavailable
    queue.rewind();
    is(queue.progress.hasStalledFor(0), true);
    take(queue);
    queue.acknowledge(1);
    is(queue.progress.hasStalledFor(0), false);
  }

  /** The sidecar does not count as stalled when it receives a report of drops after a long idle time. */
  @Test
  void aReportAfterAnIdleTimeIsNoStall() throws Exception {
    AtomicLong clock = new AtomicLong();
    RecordQueue queue = new RecordQueue(QueueConfig.of(10).withClock(clock::get));
    queue.offer(routine());
    takeAll(queue);
    queue.progress.read(1);
    clock.addAndGet(TimeUnit.MINUTES.toNanos(10));
    queue.drops.count(DropCounters.LISTENER_QUEUE, "event", 1);
    is(kinds(takeAll(queue)), "d2");
    is(queue.progress.hasStalledFor(0) + " " + queue.progress.hasStalledFor(1), "true false");
  }

  /** A sidecar that reads none of its records is stalled, even if they were evicted. */
  @Test
  void evictedRecordsCountAsUnread() throws Exception {
    RecordQueue queue = new RecordQueue(QueueConfig.of(10).withBytes(100));
    queue.offer(large(150));
    for (Record record : take(queue)) {
      record.line();
    }
    take(queue);
    is(queue.size() + " " + queue.progress.hasStalledFor(0), "0 true");
    queue.progress.read(1);
    is(queue.progress.hasStalledFor(0), false);
    queue.rewind();
    is(queue.progress.hasStalledFor(0), false); // the new sidecar receives no record
  }

  /** The used share grows to 1 when records are dropped, whatever the number of records in flight. */
  @Test
  void theUsageTellsHowNearADropIs() throws Exception {
    RecordQueue queue = new RecordQueue(QueueConfig.of(64).withBytes(1_000));
    offerRoutine(queue, 64);
    is(queue.usage.usedFraction() + " " + queue.drops.total(), "1.0 0");
    takeAll(queue);
    is(queue.usage.usedFraction() + " " + queue.usage.unacknowledged(), "0.0 56");
    offerRoutine(queue, 48);
    is(queue.usage.usedFraction() + " " + queue.usage.unacknowledged(), "0.75 16");
    queue.offer(large(1_892)); // 1,900 of 2,000 bytes
    is(queue.usage.usedFraction() + " " + queue.usage.wasNearlyFull() + " " + queue.drops.total(), "0.95 true 0");
  }

  /** An unwritable record leaves the queue, and a report of the loss follows immediately. */
  @Test
  void anUnwritableRecordIsReported() throws Exception {
    RecordQueue queue = new RecordQueue(QueueConfig.of(10));
    RecordWriter writer = writer(queue);
    queue.offer(new Record("bad", Record.Priority.ROUTINE, json -> { throw new StackOverflowError(); }));
    ByteArrayOutputStream lines = new ByteArrayOutputStream();
    writer.next(lines, 0);
    is(lines.size() + " " + queue.size() + " " + queue.progress.hasStalledFor(0), "0 0 false");
    takesAtMost(30_000, () -> writer.next(lines, 60_000));
    is(lines.toString("UTF-8").replaceAll("\"at\":\\d+,", ""),
        "{\"seq\":2,\"kind\":\"dropped\",\"where\":\"unwritable\",\"records\":{\"bad\":1}}\n");
    is(queue.drops.total() + " " + queue.size() + " " + queue.drops.unreported(), "1 1 {}");
    queue.acknowledge(2);
    is(queue.size(), 0);
    // With the type sync, Spark may wait for the second record's number, so its report is not delayed either.
    long seq = queue.offer(new Record("bad", Record.Priority.ROUTINE, json -> { throw new StackOverflowError(); }));
    writer.next(lines, 0);
    List<Record> account = take(queue);
    is(seq + " " + kinds(account) + " " + counts(account.get(0)), "3 d4 unwritable {bad=1}");
  }

  /** Drops can be reported before the next record, for example before the end of the application. */
  @Test
  void dropsAreReportedBeforeTheNextRecord() throws Exception {
    RecordQueue queue = new RecordQueue(QueueConfig.of(10));
    queue.reportDrops(); // nothing to report
    queue.drops.count(DropCounters.LISTENER_QUEUE, "event", 1);
    is(kinds(takeAll(queue)), "d1");
    queue.drops.count(DropCounters.LISTENER_QUEUE, "event", 2);
    queue.drops.count(DropCounters.UNWRITABLE, "event", 3);
    queue.reportDrops();
    queue.offer(lifecycle());
    is(kinds(takeAll(queue)), "d2 d3 l4");
  }

  /** A job whose end cannot be written is not restored as a running job. */
  @Test
  void anUnwritableEndEndsItsSubject() throws Exception {
    RecordQueue queue = new RecordQueue(QueueConfig.of(10));
    RecordWriter writer = writer(queue);
    Subject job = new Subject();
    queue.offer(new Record("start", Record.Priority.LIFECYCLE, Record.Change.keep(job, Record.Rank.WORK), json -> {}));
    ByteArrayOutputStream lines = new ByteArrayOutputStream();
    writer.next(lines, 0);
    queue.acknowledge(1);
    is(queue.rewind().size(), 1);
    Record.Body unwritable = json -> { throw new StackOverflowError(); };
    queue.offer(new Record("end", Record.Priority.LIFECYCLE, Record.Change.forget(job), unwritable));
    writer.next(lines, 0);
    is(queue.rewind().size(), 0);
  }

  /** Only unwritten records make a queue nearly full, because written records can be evicted. */
  @Test
  void theQueueNotesOnceThatItWasNearlyFull() throws Exception {
    RecordQueue queue = new RecordQueue(QueueConfig.of(20));
    offerRoutine(queue, 17);
    takeAll(queue);
    offerRoutine(queue, 17);
    is(queue.usage.wasNearlyFull(), false);
    queue.offer(lifecycle());
    is(queue.usage.wasNearlyFull(), true);
    takeAll(queue);
    is(queue.usage.wasNearlyFull() + " " + queue.drops.total(), "true 0");
  }
}
