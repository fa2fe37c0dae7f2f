package io.sparkevents;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.SparkConf;
import org.slf4j.Logger;

/** Checks of the shim's parts, run by test_shim.py: each method of the name check… prints one line. */
public final class ShimChecks {
  private static final String WRITER = "the writer";

  private static Record routine() {
    return new Record("routine", Record.Worth.ROUTINE, null, json -> {});
  }

  private static Record lifecycle() {
    return new Record("lifecycle", Record.Worth.LIFECYCLE, null, json -> {});
  }

  private static List<Record> take(HandoffQueue queue) throws InterruptedException {
    List<Record> taken = new ArrayList<>();
    queue.take(taken, 0);
    return taken;
  }

  private static List<Record> takeAll(HandoffQueue queue) throws InterruptedException {
    List<Record> all = new ArrayList<>();
    for (List<Record> some = take(queue); !some.isEmpty(); some = take(queue)) {
      all.addAll(some);
    }
    return all;
  }

  private static void is(Object actual, Object expected) {
    if (!String.valueOf(actual).equals(String.valueOf(expected))) {
      throw new AssertionError("expected " + expected + ", got " + actual);
    }
  }

  private static String kinds(List<Record> records) {
    StringBuilder text = new StringBuilder();
    for (Record record : records) {
      text.append(record.kind.charAt(0)).append(record.seq()).append(' ');
    }
    return text.toString().trim();
  }

  /** A program's event goes to the sidecar on one line as it is; what is no event is refused to its face. */
  public static void checkEventsOfPrograms() throws Exception {
    String event = "{\"id\":\"1\",\"name\":\"A\",\"attributes\":{\"text\":\"a\\nb\"}}";
    String line = new String(new AddedEvent(event + "\n").record().line(), "UTF-8");
    is(line.indexOf('\n'), line.length() - 1);
    is(line.endsWith("\"event\":" + event + "}\n"), true);
    is(Events.add(event), false); // no application runs here
    for (String none : Arrays.asList("", "[]", "{", "{} {}", "1", "nonsense")) {
      try {
        Events.add(none);
        throw new AssertionError("taken: " + none);
      } catch (IllegalArgumentException refused) {
        is(refused.getMessage().startsWith("an event is "), true);
      }
    }
  }

  /** What a program's own event cannot be is refused at once, with the name of what is wrong. */
  public static void checkEventsThatAreBuilt() {
    is(Events.builder("shop", "Opened").attribute("people", 3).severity("WARN").body("open").observedAt(1).add(), false);
    refused("classScope: given  ", () -> Events.builder(" ", "Opened"));
    refused("name: given null", () -> Events.builder("shop", null));
    refused("severity: given LOUD, allowed is one of [TRACE", () -> Events.builder("a", "b").severity("LOUD"));
    refused("observedAt: given -1", () -> Events.builder("a", "b").observedAt(-1));
    refused("attribute key: given ", () -> Events.builder("a", "b").attribute("", 1));
    for (Object wrong : new Object[] {null, new int[0], Double.NaN, Float.POSITIVE_INFINITY, 'c', new Object()}) {
      refused("attribute door: given " + wrong, () -> Events.builder("a", "b").attribute("door", wrong));
    }
    for (Object right : new Object[] {"", true, 1, 2L, (short) 3, (byte) 4, 0.5, 0.25f}) {
      is(Events.builder("a", "b").attribute("door", right).add(), false);
    }
  }

  private static void refused(String why, Runnable call) {
    try {
      call.run();
    } catch (IllegalArgumentException refusal) {
      is(refusal.getMessage().startsWith(why), true);
      return;
    }
    throw new AssertionError("taken, though " + why);
  }

  /** A logger of which only what it is told is known: "level text"; each call passes through the gate. */
  private static Logger logger(ConcurrentLinkedQueue<String> told, Semaphore gate) {
    return (Logger)
        Proxy.newProxyInstance(
            ShimChecks.class.getClassLoader(),
            new Class<?>[] {Logger.class},
            (self, method, arguments) -> {
              gate.acquire();
              told.add(method.getName() + " " + arguments[arguments.length - 1]);
              return null;
            });
  }

  private static Map<String, String> event(String level, String message) {
    Map<String, String> answer = new HashMap<>();
    answer.put("level", level);
    answer.put("message", message);
    return answer;
  }

  /** Events are logged in their order, at their level, before the log is closed. */
  public static void checkEventsAreLogged() throws Exception {
    ConcurrentLinkedQueue<String> told = new ConcurrentLinkedQueue<>();
    EventLog events = new EventLog(logger(told, new Semaphore(100)));
    for (String level : Arrays.asList("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL", "NEWER")) {
      events.receive(event(level, "{} " + level));
    }
    is(events.close(10_000), 0);
    is(
        told,
        "[trace {} TRACE, debug {} DEBUG, info {} INFO, warn {} WARN, error {} ERROR, error {} FATAL, info {} NEWER]");
  }

  /** An appender that hangs holds nobody up, neither while events come nor at the end; what is missing is told. */
  public static void checkAHangingLogHoldsNobodyUp() throws Exception {
    ConcurrentLinkedQueue<String> told = new ConcurrentLinkedQueue<>();
    Semaphore gate = new Semaphore(0);
    EventLog events = new EventLog(logger(told, gate));
    int more = 500;
    for (int n = 0; n < EventLog.CAPACITY + more; n++) {
      events.receive(event("INFO", "event " + n));
    }
    long start = System.nanoTime();
    long missing = events.close(100);
    long took = (System.nanoTime() - start) / 1_000_000;
    if (took > 2_000) {
      throw new AssertionError("the end took " + took + " ms");
    }
    // One of them may be with the appender.
    if (missing < EventLog.CAPACITY + more - 1) {
      throw new AssertionError("only " + missing + " are said to be missing");
    }
  }

  /** What did not fit while the log was slow is told in the log itself, once it goes on. */
  public static void checkALogThatWasSlowSaysSo() throws Exception {
    ConcurrentLinkedQueue<String> told = new ConcurrentLinkedQueue<>();
    Semaphore gate = new Semaphore(0);
    EventLog events = new EventLog(logger(told, gate));
    for (int n = 0; n < EventLog.CAPACITY + 500; n++) {
      events.receive(event("INFO", "event " + n));
    }
    gate.release(1_000_000);
    is(events.close(10_000), 0);
    int written = 0;
    long dropped = 0;
    for (String one : told) {
      if (one.startsWith("info event")) {
        written++;
      } else {
        dropped += Long.parseLong(one.substring("warn ".length()));
      }
    }
    is(written + dropped, EventLog.CAPACITY + 500);
    is(dropped > 0, true);
  }

  /** Producers, a writer, an acknowledger, deaths: never too many, none unaccounted for, all in order. */
  public static void checkQueueUnderThreads() throws Exception {
    int capacity = 50;
    HandoffQueue queue = new HandoffQueue(capacity, false);
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
                  if (record.worth == Record.Worth.ACCOUNT) {
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
    // Only now: before that, what is written may be empty for a moment without being all.
    writing.set(false);
    acknowledger.join();
    is(wrong, "[]");
    is(queue.isAcknowledgedEntirely(), true);
    is(delivered.size() - accounts.get() + queue.dropped(), offered.get());
  }

  private interface Work {
    void run() throws Exception;
  }

  private static Thread start(ConcurrentLinkedQueue<Throwable> wrong, Work work) {
    Thread thread =
        new Thread(
            () -> {
              try {
                work.run();
              } catch (Throwable failure) {
                wrong.add(failure);
              }
            });
    thread.start();
    return thread;
  }

  /** A full queue gives up routine records first, the oldest first, and status changes only for status changes. */
  public static void checkTheLeastWorthyGoFirst() throws Exception {
    HandoffQueue queue = new HandoffQueue(3, true);
    queue.offer(lifecycle());
    queue.offer(routine());
    queue.offer(routine());
    queue.offer(routine()); // 2 goes
    queue.offer(lifecycle()); // 3 goes
    queue.offer(lifecycle()); // 4 goes
    is(queue.offer(routine()), 0); // itself
    queue.offer(lifecycle()); // 1 goes
    is(queue.dropped(), 5);
    queue.finish();
    is(kinds(takeAll(queue)), "l5 l6 l8 d9");
  }

  /** What was written makes room before anything is dropped; what is being written does not. */
  public static void checkWhatIsWrittenMakesRoom() throws Exception {
    HandoffQueue queue = new HandoffQueue(2, true);
    queue.offer(routine());
    queue.offer(routine());
    is(kinds(take(queue)), "r1");
    is(kinds(take(queue)), "r2"); // so 1 is written
    queue.offer(routine());
    is(queue.dropped(), 0);
    queue.offer(routine()); // 2 is being written, 3 goes
    is(queue.dropped(), 1);
    is(queue.size(), 2);
  }

  /** What had made room and was not acknowledged is lost with the sidecar, and counted; the rest is sent again. */
  public static void checkDeathCostsOnlyWhatHadMadeRoom() throws Exception {
    HandoffQueue queue = new HandoffQueue(2, true);
    for (int i = 0; i < 4; i++) {
      queue.offer(routine());
      take(queue);
      take(queue);
    }
    queue.acknowledge(1);
    queue.rewind();
    is(queue.dropped(), 1); // 2; 1 was acknowledged, 3 and 4 are here
    queue.finish();
    is(kinds(takeAll(queue)), "r3 r4 d5");
  }

  /** Accounts of drops are rare while it goes on, and the last comes before the end. */
  public static void checkAccounts() throws Exception {
    HandoffQueue queue = new HandoffQueue(1, true);
    for (int i = 0; i < 3; i++) {
      queue.offer(routine());
    }
    is(kinds(takeAll(queue)), "r3 d4");
    is(queue.takeDropNotice(), "handoff dropped {routine=2}");
    is(queue.takeDropNotice(), null);
    for (int i = 0; i < 3; i++) {
      queue.offer(routine());
    }
    is(kinds(takeAll(queue)), "r7");
    queue.countDropped("elsewhere", "thing", 5);
    queue.finish();
    is(kinds(takeAll(queue)), "d8 d9");
    is(queue.dropped(), 9);
    is(queue.untoldDrops(), "");
  }

  /** An account of drops that a sidecar died with is sent again. */
  public static void checkAnAccountSurvives() throws Exception {
    HandoffQueue queue = new HandoffQueue(1, true);
    queue.offer(routine());
    queue.offer(routine());
    is(kinds(takeAll(queue)), "r2 d3");
    queue.rewind();
    is(kinds(takeAll(queue)).endsWith("d3"), true);
  }

  /** A writer that was busy when it was woken does not wait; one that waits is woken by all there is. */
  public static void checkNoWakeUpIsLost() throws Exception {
    for (boolean prompt : new boolean[] {true, false}) {
      HandoffQueue queue = new HandoffQueue(10, prompt);
      queue.wakeWriter();
      takesAtMost(1_000, () -> queue.take(new ArrayList<>(), 60_000));
      for (Work wake : Arrays.<Work>asList(queue::wakeWriter, () -> queue.offer(routine()), queue::finish)) {
        Thread writer = start(new ConcurrentLinkedQueue<>(), () -> queue.take(new ArrayList<>(), 60_000));
        while (writer.getState() != Thread.State.TIMED_WAITING && writer.isAlive()) {
          Thread.yield();
        }
        wake.run();
        takesAtMost(5_000, writer::join);
      }
    }
  }

  private static void takesAtMost(long millis, Work work) throws Exception {
    long start = System.nanoTime();
    work.run();
    long took = (System.nanoTime() - start) / 1_000_000;
    if (took > millis) {
      throw new AssertionError("took " + took + " ms");
    }
  }

  /** A writer that has nothing to write, on a thread of its own until the queue is finished; what it writes. */
  private static List<Record> written(HandoffQueue queue, ConcurrentLinkedQueue<Throwable> wrong) {
    List<Record> written = Collections.synchronizedList(new ArrayList<>());
    Thread writer =
        start(
            wrong,
            () -> {
              while (!queue.isFinished()) {
                List<Record> some = new ArrayList<>();
                queue.take(some, 60_000);
                written.addAll(some);
              }
            });
    writer.setName(WRITER);
    return written;
  }

  /** Until so much is written, and the writer waits for more. */
  private static void awaitIdle(List<Record> written, int count) {
    while (written.size() < count) {
      Thread.yield();
    }
    for (Thread thread : Thread.getAllStackTraces().keySet()) {
      while (thread.getName().equals(WRITER) && thread.getState() != Thread.State.TIMED_WAITING && thread.isAlive()) {
        Thread.yield();
      }
    }
  }

  /** Who waits writes by himself, but only into a pipe that is known to be empty: he must never be blocked by it. */
  public static void checkWhoWaitsWritesIntoAnEmptyPipeAlone() throws Exception {
    HandoffQueue queue = new HandoffQueue(10, true);
    ConcurrentLinkedQueue<Throwable> wrong = new ConcurrentLinkedQueue<>();
    List<String> direct = Collections.synchronizedList(new ArrayList<>());
    queue.rewind();
    queue.open(line -> direct.add(new String(line, "UTF-8").replaceAll(".*\"seq\":(\\d+).*\n", "$1")));
    List<Record> written = written(queue, wrong);
    awaitIdle(written, 0);
    queue.offer(routine(), true); // nothing has been answered for yet: hello may still be in the pipe
    awaitIdle(written, 1);
    queue.offer(routine(), true); // 1 is not answered for
    awaitIdle(written, 2);
    queue.answered(1);
    queue.offer(routine(), true); // 2 is not
    awaitIdle(written, 3);
    queue.answered(3);
    is(queue.offer(routine(), true), 4); // now
    is(direct, "[4]");
    queue.offer(routine(), true); // 4 is under way
    awaitIdle(written, 4);
    queue.acknowledge(5);
    queue.offer(routine()); // nobody waits
    awaitIdle(written, 5);
    queue.acknowledge(6);
    char[] much = new char[Shortcut.MOST_BYTES];
    Arrays.fill(much, 'x');
    String text = new String(much);
    queue.offer(new Record("long", Record.Worth.ROUTINE, null, json -> json.writeStringField("text", text)), true);
    awaitIdle(written, 6);
    queue.acknowledge(7);
    queue.offer(routine(), true);
    is(direct, "[4, 8]");
    is(kinds(written), "r1 r2 r3 r5 r6 l7");
    queue.finish();
    is(wrong, "[]");
  }

  /** What a predecessor has answered for does not say that the new pipe is empty; what it got is sent again. */
  public static void checkANewPipeIsNotKnownToBeEmpty() throws Exception {
    HandoffQueue queue = new HandoffQueue(10, true);
    ConcurrentLinkedQueue<Throwable> wrong = new ConcurrentLinkedQueue<>();
    List<Long> direct = Collections.synchronizedList(new ArrayList<>());
    AtomicBoolean broken = new AtomicBoolean();
    Shortcut way =
        line -> {
          if (broken.get()) {
            throw new java.io.IOException("Broken pipe");
          }
          direct.add((long) line.length);
        };
    queue.offer(routine(), true);
    is(kinds(take(queue)), "r1");
    queue.open(way);
    List<Record> written = written(queue, wrong);
    awaitIdle(written, 0);
    queue.acknowledge(1);
    broken.set(true);
    is(queue.offer(routine(), true), 2); // written, as far as the writer knows, into a pipe that is broken
    queue.rewind();
    queue.open(way);
    broken.set(false);
    queue.wakeWriter();
    awaitIdle(written, 1);
    queue.answered(2); // by the predecessor, which was late to say so
    queue.offer(routine(), true);
    awaitIdle(written, 2);
    is(kinds(written), "r2 r3");
    is(direct, "[]");
    queue.answered(3);
    queue.offer(routine(), true);
    is(direct.size(), 1);
    queue.open(null);
    queue.answered(4);
    queue.offer(routine(), true);
    awaitIdle(written, 3);
    is(direct.size(), 1);
    queue.finish();
    is(wrong, "[]");
  }

  /** Threads that write by themselves and a writer: one at a time, in order, nothing twice, nothing left out. */
  public static void checkOneWritesAtATime() throws Exception {
    HandoffQueue queue = new HandoffQueue(1_000, false);
    ConcurrentLinkedQueue<Throwable> wrong = new ConcurrentLinkedQueue<>();
    ConcurrentLinkedQueue<Long> pipe = new ConcurrentLinkedQueue<>();
    AtomicBoolean busy = new AtomicBoolean();
    AtomicLong direct = new AtomicLong();
    AtomicLong last = new AtomicLong();
    java.util.function.LongConsumer write =
        seq -> {
          if (!busy.compareAndSet(false, true)) {
            throw new AssertionError("two write at a time");
          }
          if (seq != last.get() + 1) {
            throw new AssertionError(seq + " after " + last.get());
          }
          last.set(seq);
          pipe.add(seq);
          busy.set(false);
        };
    queue.open(
        line -> {
          direct.incrementAndGet();
          write.accept(Long.parseLong(new String(line, "UTF-8").replaceAll(".*\"seq\":(\\d+).*\n", "$1")));
        });
    Thread writer =
        start(
            wrong,
            () -> {
              while (!queue.isFinished()) {
                List<Record> some = new ArrayList<>();
                queue.take(some, 5);
                for (Record record : some) {
                  write.accept(record.seq());
                }
              }
            });
    AtomicBoolean over = new AtomicBoolean();
    Thread sidecar =
        start(
            wrong,
            () -> {
              while (!over.get()) {
                Long seq = pipe.poll();
                if (seq == null) {
                  Thread.yield();
                } else {
                  queue.acknowledge(seq);
                }
              }
            });
    List<Thread> listeners = new ArrayList<>();
    for (int i = 0; i < 2; i++) {
      boolean waits = i == 0;
      listeners.add(
          start(
              wrong,
              () -> {
                for (int n = 0; n < 3_000; n++) {
                  long seq = queue.offer(routine(), waits);
                  if (waits && !queue.awaitAnswered(seq, 60_000)) {
                    throw new AssertionError(seq + " is not answered for");
                  }
                  if (!waits && n % 100 == 0) {
                    Thread.sleep(1);
                  }
                }
              }));
    }
    for (Thread listener : listeners) {
      listener.join();
    }
    queue.finish();
    writer.join();
    over.set(true);
    sidecar.join();
    is(wrong, "[]");
    is(last.get(), 6_000L);
    is(direct.get() > 0, true);
  }

  /** Whoever waits for an acknowledgement goes on when there will be none. */
  public static void checkCloseReleasesAll() throws Exception {
    HandoffQueue queue = new HandoffQueue(10, true);
    long seq = queue.offer(routine());
    ConcurrentLinkedQueue<Throwable> wrong = new ConcurrentLinkedQueue<>();
    Thread one = start(wrong, () -> is(queue.awaitAnswered(seq, 60_000), false));
    Thread other = start(wrong, () -> queue.awaitWritten(60_000));
    queue.close();
    takesAtMost(5_000, one::join);
    takesAtMost(5_000, other::join);
    is(wrong, "[]");
    is(queue.offer(routine()), 0);
    is(queue.untoldDrops(), "handoff dropped {routine=2}");
  }

  /** Tasks that are speculated, fail and are resubmitted: each edge once, and the counts end where they began. */
  public static void checkStages() {
    Stages stages = new Stages();
    stages.submitted(1, 0, 2);
    is(stages.taskStarted(1, 0, 0), null);
    is(stages.taskStarted(1, 0, 1).status, "ALL_RUNNING_OR_FINISHED");
    is(stages.taskStarted(1, 0, 1), null); // speculation
    is(stages.taskEnded(1, 0, 1, true, false), null);
    is(stages.taskEnded(1, 0, 1, false, false), null); // the other attempt is killed
    is(stages.taskEnded(1, 0, 0, true, false).status, "ALL_FINISHED");
    is(stages.taskEnded(1, 0, 0, false, true).status, "NOT_ALL_RUNNING_OR_FINISHED"); // its executor is gone
    is(stages.taskStarted(1, 0, 0).status, "ALL_RUNNING_OR_FINISHED");
    Stages.Attempt last = stages.taskEnded(1, 0, 0, true, false);
    is(last.status + " " + last.runningTasks() + " " + last.finishedTasks(), "ALL_FINISHED 0 2");
    is(stages.taskStarted(1, 0, 2), null); // no such task
    is(stages.taskStarted(1, 1, 0), null); // no such attempt
  }

  /** Properties are redacted as Spark does it: by key and by value, before they leave the driver. */
  public static void checkRedaction() throws Exception {
    java.util.Properties local = new java.util.Properties();
    local.setProperty("spark.job.description", "load with password=hunter2");
    local.setProperty("spark.jobGroup.id", "nightly");
    local.setProperty("spark.hadoop.fs.s3a.secret.key", "hunter3");
    JobProperties properties = new JobProperties(new Redaction(Redaction.SPARK_DEFAULT));
    String line = line(properties, local);
    is(line.contains("hunter"), false);
    is(line.contains("*********(redacted)"), true);
    is(line.contains("nightly"), true);
    // The user's own expression takes the place of Spark's, as in Spark.
    is(line(new JobProperties(new Redaction("nightly")), local).contains("hunter2"), true);
    is(line(new JobProperties(new Redaction("nightly")), local).contains("nightly"), false);
    // One that cannot be compiled lets nothing through.
    is(line(new JobProperties(new Redaction("[")), local).contains("nightly"), false);
  }

  private static String line(JobProperties properties, java.util.Properties local) throws Exception {
    String[] selected = JobProperties.select(local);
    return new String(Record.json(json -> properties.write(json, selected)), "UTF-8");
  }

  /** Pauses double up to 30 s; so many deaths in the window and no more; older ones are forgiven. */
  public static void checkRestarts() {
    Restarts restarts = new Restarts(10, 600_000);
    List<Long> pauses = new ArrayList<>();
    for (int i = 0; i < 11; i++) {
      pauses.add(restarts.nextPauseMillis(i));
    }
    is(pauses, "[100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, -1]");
    is(restarts.nextPauseMillis(601_000_000_000L), 100);
    is(restarts.count(), 11);
    is(new Restarts(0, 1).nextPauseMillis(5), -1);
    Restarts many = new Restarts(100, 600_000);
    for (int i = 0; i < 99; i++) {
      many.nextPauseMillis(i);
    }
    is(many.nextPauseMillis(99), 30_000);
  }

  /** What the driver needs of the settings is read leniently: the sidecar says what is wrong. */
  public static void checkSettings() {
    SparkConf conf = new SparkConf(false);
    conf.set("spark.events.sidecar.restarts.max", "3").set("spark.events.sidecar.restarts.window", "2 min");
    conf.set("spark.events.shutdown.timeout", "soon").set("spark.events.dispatcher.queue.size", "-5");
    Settings settings = Settings.read(conf, Collections.emptyMap());
    is(settings.mostRestarts(), 3);
    is(settings.restartsWindowMillis(), 120_000);
    is(settings.shutdownTimeoutMillis(), 10_000);
    is(settings.queueSize(), 1);
    is(settings.synchronous(), true);
    Settings none = Settings.read(new SparkConf(false), Collections.emptyMap());
    is(none.mostRestarts() + " " + none.restartsWindowMillis() + " " + none.queueSize(), "10 600000 1024");
  }

  /** A Python that the user has named is the only one; what is no Python is not tried. */
  public static void checkInterpreters() {
    SparkConf conf = new SparkConf(false).set("spark.pyspark.python", "/env/bin/python3");
    Map<String, String> environment = Collections.singletonMap("PYSPARK_DRIVER_PYTHON", "jupyter");
    List<Interpreter> found =
        Interpreter.candidates(Settings.read(conf, environment), conf, environment);
    is(found.get(0).path + " " + found.get(0).objection(), "/env/bin/python3 null");
    is(found.get(1).path + " " + found.get(1).objection(), "jupyter not a Python interpreter");
    conf.set("spark.events.python", "/my/own");
    found = Interpreter.candidates(Settings.read(conf, environment), conf, environment);
    is(found.size() + " " + found.get(0).path + " " + found.get(0).objection(), "1 /my/own null");
  }

  /** Counters go on when a new sidecar counts from 0; levels do not; what is not a number is 0. */
  public static void checkStatistics() {
    Statistics statistics = new Statistics();
    List<String> seen = new ArrayList<>();
    Map<String, Statistics.Reporter> reporters = new HashMap<>();
    statistics.observe((name, reporter) -> { seen.add(name); reporters.put(name, reporter); });
    statistics.receive(told("delivered", 5, "spooled", 2, "breaker", "half_open"));
    statistics.receive(told("delivered", 6, "spooled", 3, "breaker", "open"));
    is(reporters.get("a").breakerState(), 2);
    statistics.sidecarStarted();
    is(reporters.get("a").count("delivered") + " " + reporters.get("a").level("spooled"), "6 0.0");
    statistics.receive(told("delivered", 1, "spooled", "many", "dropped", 4));
    is(reporters.get("a").count("delivered") + " " + reporters.get("a").level("spooled"), "7 0.0");
    is(reporters.get("a").breakerState() + " " + statistics.dropped(), "0 4");
    statistics.receive(Collections.singletonMap("reporters", 7));
    is(seen, "[a]");
  }

  private static Map<?, ?> told(Object... numbers) {
    Map<Object, Object> one = new HashMap<>();
    for (int i = 0; i < numbers.length; i += 2) {
      one.put(numbers[i], numbers[i + 1]);
    }
    return Collections.singletonMap("reporters", Collections.singletonMap("a", one));
  }

  /** Threads as they were recorded: who ends the application is told from their frames. */
  public static void checkEndings() {
    String submit = "org.apache.spark.deploy.SparkSubmit.runMain org.apache.spark.deploy.SparkSubmit$.main";
    String hooks = "java.lang.ApplicationShutdownHooks.runHooks ";
    is(ending("Thread-4", "org.apache.spark.SparkContext.stop py4j.GatewayConnection.run"), "STOPPED");
    is(ending("DestroyJavaVM", hooks + "java.lang.Shutdown.shutdown"), "RETURNED");
    is(ending("main", hooks + "java.lang.Shutdown.exit " + "org.apache.spark.deploy.SparkSubmit.doSubmit"), "PROGRAM_FAILED");
    is(ending("main", hooks + "java.lang.Shutdown.exit App.main " + submit), "EXITED");
    is(ending("SIGTERM handler", hooks + "java.lang.Shutdown.exit java.lang.Terminator$1.handle jdk.internal.misc.Signal$1.run"), "SIGTERM");
    is(ending("main", "java.lang.Thread.sleep"), "UNKNOWN");
    is(ending("main", hooks + "java.lang.Shutdown.exit org.apache.spark.api.python.PythonGatewayServer$.main"), "GATEWAY_CLOSED");
  }

  private static Ending ending(String thread, String frames) {
    ArrayDeque<StackTraceElement> stack = new ArrayDeque<>();
    for (String frame : frames.split(" ")) {
      int dot = frame.lastIndexOf('.');
      stack.add(new StackTraceElement(frame.substring(0, dot), frame.substring(dot + 1), null, 1));
    }
    Thread dead = new Thread(thread);
    return Ending.of(Collections.singletonMap(dead, stack.toArray(new StackTraceElement[0])), false);
  }

  public static void main(String[] arguments) throws Exception {
    for (Method method : ShimChecks.class.getDeclaredMethods()) {
      if (method.getName().startsWith("check")) {
        try {
          method.invoke(null);
          System.out.println(method.getName() + "\tok");
        } catch (InvocationTargetException failed) {
          System.out.println(method.getName() + "\t" + failed.getCause());
        }
      }
    }
  }
}
