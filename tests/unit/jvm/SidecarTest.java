package io.sparkevents;

import static io.sparkevents.Checks.is;

import io.sparkevents.config.Settings;
import io.sparkevents.metrics.Statistics;
import io.sparkevents.queue.QueueConfig;
import io.sparkevents.queue.Record;
import io.sparkevents.queue.RecordQueue;
import io.sparkevents.queue.SyncBarrier;
import io.sparkevents.queue.Threads;
import io.sparkevents.sidecar.Interpreter;
import io.sparkevents.sidecar.Sidecar;
import io.sparkevents.sidecar.SidecarProcess;
import io.sparkevents.sidecar.StallMonitor;
import io.sparkevents.wire.DriverLog;
import io.sparkevents.wire.MessageReader;
import io.sparkevents.wire.RecordWriter;
import java.io.ByteArrayOutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Collectors;
import org.apache.spark.SparkConf;
import org.junit.jupiter.api.Test;

/** Tests of the sidecar's supervisor, using a shell script instead of the sidecar. */
final class SidecarTest {
  /**
   * Script that appends its start and every line to a log file (the diary), acknowledges every line, and exits after
   * the goodbye.
   */
  private static final String DOUBLE =
      "#!/bin/sh\n"
          + "echo start >> \"$0.diary\"\n"
          + "read hello\n"
          + "echo '{\"kind\":\"ready\"}'\n"
          + "while read -r line; do\n"
          + "  echo \"$line\" >> \"$0.diary\"\n"
          + "  echo '{\"kind\":\"ack\",\"seq\":1000000,\"sequence\":1}'\n"
          + "  case \"$line\" in *goodbye*) exit 0;; esac\n"
          + "done\n";

  /** Script that acknowledges each record a quarter of a second after reading the record. */
  static final String SLOW =
      "#!/bin/sh\n"
          + "read hello\n"
          + "echo '{\"kind\":\"ready\"}'\n"
          + "while read -r line; do\n"
          + "  sleep 0.25\n"
          + "  seq=\"${line#*\\\"seq\\\":}\"\n"
          + "  echo \"{\\\"kind\\\":\\\"ack\\\",\\\"seq\\\":${seq%%[!0-9]*},\\\"sequence\\\":1}\"\n"
          + "done\n";

  /** Script that reads every record and acknowledges no record. */
  static final String SILENT = "#!/bin/sh\n" + "read hello\n" + "echo '{\"kind\":\"ready\"}'\n" + "cat > /dev/null\n";

  /** Script that becomes ready and exits. */
  private static final String DYING = "#!/bin/sh\n" + "read hello\n" + "echo '{\"kind\":\"ready\"}'\n" + "exit 1\n";

  /** Runs {@code work} with a script that replaces the sidecar, in a temporary folder. */
  static void withDouble(Checks.Doing work) throws Exception {
    withDouble(DOUBLE, work);
  }

  static void withDouble(String text, Checks.Doing work) throws Exception {
    Path folder = Files.createTempDirectory("sidecar");
    Path script = folder.resolve("double");
    Files.writeString(script, text);
    is(script.toFile().setExecutable(true), true);
    try {
      work.run(script);
    } finally {
      Files.deleteIfExists(diary(script));
      Files.delete(script);
      Files.delete(folder);
    }
  }

  static Path diary(Path script) {
    return script.resolveSibling("double.diary");
  }

  /** Waits until the diary, the log file of the script, contains the text. */
  static List<String> await(Path script, String text) throws Exception {
    long deadline = System.nanoTime() + 60_000_000_000L;
    while (System.nanoTime() < deadline) {
      if (Files.exists(diary(script)) && Files.readString(diary(script)).contains(text)) {
        return Files.readAllLines(diary(script));
      }
      Thread.yield();
    }
    throw new AssertionError("there is no " + text + " in the diary");
  }

  /** Script whose first run prints many lines, acknowledges one record as its last message, and exits. */
  private static final String HASTY =
      DOUBLE.replace(
          "while read -r line; do\n",
          "if [ $(wc -l < \"$0.diary\") -eq 1 ]; then\n"
              + "  read -r line\n"
              + "  yes x | head -n 2000\n"
              + "  echo '{\"kind\":\"ack\",\"seq\":1,\"sequence\":1}'\n"
              + "  echo exiting >> \"$0.diary\"\n"
              + "  exit 9\n"
              + "fi\n"
              + "while read -r line; do\n");

  /** A record that a sidecar acknowledges immediately before its exit is not sent again. */
  @Test
  void theLastMessagesOfAProcessAreRead() throws Exception {
    withDouble(
        HASTY,
        script -> {
          RecordQueue queue = new RecordQueue(QueueConfig.of(100));
          Sidecar sidecar = sidecar(queue, new SparkConf(false).set("spark.events.python", script.toString()));
          sidecar.start();
          queue.offer(new Record("first", Record.Priority.ROUTINE, json -> {}));
          await(script, "exiting");
          // This record wakes the writer while the reader still parses the lines of the first run.
          queue.offer(new Record("second", Record.Priority.ROUTINE, json -> {}));
          List<String> lines = await(script, "second");
          is(lines.size() + " " + lines.subList(0, 3), "4 [start, exiting, start]");
          sidecar.finish();
          is(sidecar.restarts() + " " + queue.drops.total(), "1 0");
        });
  }

  /** If an unexpected error occurs while records are written, the sidecar is restarted and no event is lost. */
  @Test
  void aDefectCostsOneSidecar() throws Exception {
    withDouble(
        script -> {
          RecordQueue queue = new RecordQueue(QueueConfig.of(100));
          Sidecar sidecar = sidecar(queue, new SparkConf(false).set("spark.events.python", script.toString()));
          sidecar.start();
          is(sidecar.awaitStarted(), null);
          AtomicBoolean thrown = new AtomicBoolean();
          queue.offer(
              new Record("heavy", Record.Priority.ROUTINE, json -> {}) {
                @Override
                public int size() {
                  if (Thread.currentThread().getName().equals("spark-events-sidecar") && !thrown.getAndSet(true)) {
                    throw new OutOfMemoryError("for a moment");
                  }
                  return super.size();
                }
              });
          queue.offer(new Record("afterwards", Record.Priority.ROUTINE, json -> {}));
          List<String> lines = await(script, "afterwards");
          is(Collections.frequency(lines, "start"), 2);
          sidecar.finish();
          is(sidecar.restarts() + " " + queue.drops.unreported() + " " + queue.drops.total(), "1 {} 0");
        });
  }

  private static Sidecar sidecar(RecordQueue queue, SparkConf conf) {
    Settings settings = Settings.read(conf, Collections.emptyMap());
    return sidecar(queue, settings, Interpreter.candidates(settings, conf, Collections.emptyMap()));
  }

  private static Sidecar sidecar(RecordQueue queue, Settings settings, List<Interpreter> candidates) {
    return new Sidecar(settings, "app", candidates, queue, new SyncBarrier(settings, queue, () -> false), new Statistics());
  }

  /** An unexpected error before the first sidecar is ready is final, and a waiting thread receives the error. */
  @Test
  void aDefectBeforeTheFirstStartIsNamed() throws Exception {
    RecordQueue queue = new RecordQueue(QueueConfig.of(100));
    SparkConf conf = new SparkConf(false).set("spark.events.sidecar.start-timeout", "5s");
    // The null candidate provokes an unexpected exception.
    Sidecar sidecar = sidecar(queue, Settings.read(conf, Collections.emptyMap()), Collections.singletonList(null));
    sidecar.start();
    is(String.valueOf(sidecar.awaitStarted()).startsWith("a defect in the shim: java.lang.NullPointerException"), true);
    is(queue.isClosed() + " " + sidecar.restarts(), "true 0");
    sidecar.finish();
  }

  /** An exit code above those of signals is not described as a signal. */
  @Test
  void aHighExitCodeIsNotASignal() throws Exception {
    withDouble(
        "#!/bin/sh\nexit 255\n",
        script -> {
          Sidecar sidecar = sidecar(new RecordQueue(QueueConfig.of(1)), new SparkConf(false).set("spark.events.python", script.toString()));
          sidecar.start();
          String failure = sidecar.awaitStarted();
          is(failure.contains("exit code 255") + " " + failure.contains("signal"), "true false");
          sidecar.finish();
        });
  }

  /** Even during the application's shutdown, restarts of a sidecar that crashes repeatedly are delayed. */
  @Test
  void restartsPauseAtTheEnd() throws Exception {
    withDouble(
        DYING,
        script -> {
          RecordQueue queue = new RecordQueue(QueueConfig.of(100));
          SparkConf conf = new SparkConf(false).set("spark.events.python", script.toString());
          Sidecar sidecar = sidecar(queue, conf.set("spark.events.shutdown.timeout", "1s"));
          sidecar.start();
          is(sidecar.awaitStarted(), null);
          queue.offer(RecordQueueTest.lifecycle());
          sidecar.finish();
          is(sidecar.restarts() <= 5, true);
        });
  }

  /** If the reading thread cannot start, the process is killed. */
  @Test
  void aProcessWithoutAReaderIsKilled() throws Exception {
    withDouble(
        script -> {
          SparkConf conf = new SparkConf(false).set("spark.events.python", script.toString());
          Settings settings = Settings.read(conf, Collections.emptyMap());
          Interpreter python = Interpreter.candidates(settings, conf, Collections.emptyMap()).get(0);
          List<ProcessHandle> before = ProcessHandle.current().children().collect(Collectors.toList());
          try {
            Checks.withoutThreads(() -> SidecarProcess.start(python, message -> {}, () -> {}));
            throw new AssertionError("it was started");
          } catch (OutOfMemoryError noThread) {
            List<ProcessHandle> orphans = ProcessHandle.current().children().collect(Collectors.toList());
            orphans.removeAll(before);
            for (ProcessHandle orphan : orphans) {
              orphan.onExit().get(10, TimeUnit.SECONDS);
            }
          }
        });
  }

  /** A stall monitor that cannot start its thread throws no exception. */
  @Test
  void aStallMonitorWithoutAThread() throws Exception {
    Checks.withoutThreads(
        () -> {
          StallMonitor monitor = new StallMonitor(new RecordQueue(QueueConfig.of(1)), 1_000);
          monitor.start();
          monitor.stop();
        });
  }

  /** An error while a record is written loses only this record. */
  @Test
  void anErrorCostsOneRecord() throws Exception {
    RecordQueue queue = new RecordQueue(QueueConfig.of(100));
    RecordWriter feed = RecordQueueTest.writer(queue);
    queue.offer(new Record("bad", Record.Priority.ROUTINE, json -> { throw new StackOverflowError(); }));
    queue.offer(new Record("good", Record.Priority.ROUTINE, json -> {}));
    ByteArrayOutputStream lines = new ByteArrayOutputStream();
    feed.next(lines, 0);
    is(lines.toString("UTF-8").contains("\"good\"") + " " + queue.drops.total(), "true 1");
  }

  /** A sidecar that reads nothing while records are queued is killed once, and the kill is logged. */
  @Test
  void aStalledSidecarIsKilled() throws Exception {
    Semaphore kills = new Semaphore(0);
    RecordQueue queue = new RecordQueue(QueueConfig.of(10));
    StallMonitor monitor = new StallMonitor(queue, 60);
    List<String> logged =
        Checks.logged(
            Sidecar.class,
            () -> {
              monitor.watch(kills::release);
              monitor.look();
              is(kills.availablePermits(), 0);
              queue.offer(RecordQueueTest.routine());
              monitor.start();
              is(kills.tryAcquire(60, TimeUnit.SECONDS), true);
              monitor.look();
              monitor.stop();
            });
    is(kills.availablePermits() + " " + logged.size(), "0 1");
    is(logged.get(0).startsWith("WARN [spark-events] the sidecar read no record for 60 ms"), true);
    is(logged.get(0).contains(" while 1 are queued"), true);
  }

  /** An error while a stalled sidecar is killed does not end the monitor. */
  @Test
  void theMonitorContinuesAfterAnError() throws Exception {
    Semaphore kills = new Semaphore(0);
    RecordQueue queue = new RecordQueue(QueueConfig.of(10));
    queue.offer(RecordQueueTest.routine());
    StallMonitor monitor = new StallMonitor(queue, 60);
    List<String> logged =
        Checks.logged(
            Sidecar.class,
            () -> {
              monitor.watch(
                  () -> {
                    kills.release();
                    throw new OutOfMemoryError("for a moment");
                  });
              monitor.start();
              is(kills.tryAcquire(60, TimeUnit.SECONDS), true);
              monitor.watch(kills::release);
              is(kills.tryAcquire(60, TimeUnit.SECONDS), true);
              monitor.stop();
            });
    is(logged.size(), 2);
  }

  /** After a pause of the whole JVM, the reading thread may handle waiting messages before the sidecar is killed. */
  @Test
  void aPauseOfTheDriverIsNoStall() {
    AtomicLong clock = new AtomicLong();
    Semaphore kills = new Semaphore(0);
    RecordQueue queue = new RecordQueue(QueueConfig.of(10));
    StallMonitor monitor = new StallMonitor(queue, 0, clock::get); // the period is 1 ms
    monitor.watch(kills::release);
    queue.offer(RecordQueueTest.routine());
    clock.addAndGet(TimeUnit.SECONDS.toNanos(90));
    monitor.look();
    is(kills.availablePermits(), 0);
    clock.addAndGet(TimeUnit.MILLISECONDS.toNanos(1));
    monitor.look();
    is(kills.availablePermits(), 1);
  }

  /** A message that the shim cannot read is logged once, and later messages are handled. */
  @Test
  void anUnreadableMessageIsLoggedOnce() throws Exception {
    RecordQueue queue = new RecordQueue(QueueConfig.of(10));
    queue.offer(RecordQueueTest.routine());
    RecordQueueTest.takeAll(queue);
    Settings settings = Settings.read(new SparkConf(false), Collections.emptyMap());
    SyncBarrier barrier = new SyncBarrier(settings, queue, () -> false);
    MessageReader messages = new MessageReader(queue, barrier, new Statistics(), new DriverLog());
    List<String> logged =
        Checks.logged(
            MessageReader.class,
            () -> {
              messages.receive(message("ack", "seq", "one"));
              messages.receive(message("stats", "reporters", 1));
              messages.receive(message("unknown", "seq", 1));
              messages.receive(message("ack", "seq", 1));
            });
    is(logged.size() + " " + queue.size() + " " + messages.nextSequence(), "1 0 7");
    is(barrier.isAnswered(1), true);
    is(logged.get(0).startsWith("WARN [spark-events] cannot read a message from Python"), true);
    is(logged.get(0).contains("seq=one"), true);
  }

  private static Map<String, Object> message(String kind, String key, Object value) {
    Map<String, Object> message = new HashMap<>();
    message.put("kind", kind);
    message.put("sequence", 7);
    message.put(key, value);
    return message;
  }

  /** A sidecar that starts slowly is not killed, because the stall timeout begins when the sidecar is ready. */
  @Test
  void aSlowStartIsNoStall() throws Exception {
    withDouble(
        DOUBLE.replace("read hello\n", "read hello\nsleep 2\n"),
        script -> {
          SparkConf conf = new SparkConf(false).set("spark.events.python", script.toString());
          RecordQueue queue = new RecordQueue(QueueConfig.of(100));
          Sidecar sidecar = sidecar(queue, conf.set("spark.events.sidecar.stall-timeout", "1s"));
          sidecar.start();
          queue.offer(RecordQueueTest.lifecycle());
          await(script, "lifecycle");
          sidecar.finish();
          is(sidecar.restarts() + " " + queue.drops.total(), "0 0");
        });
  }

  /** Script that reads only the hello message. */
  private static final String FROZEN =
      "#!/bin/sh\n" + "echo start >> \"$0.diary\"\n" + "read hello\n" + "echo '{\"kind\":\"ready\"}'\n" + "exec sleep 600\n";

  /** After too many stalls, the sidecar is not restarted, and the log contains the number of its lost records. */
  @Test
  void aFrozenSidecarIsRestartedAndItsLossesCounted() throws Exception {
    withDouble(
        FROZEN,
        script -> {
          SparkConf conf = new SparkConf(false).set("spark.events.python", script.toString());
          conf.set("spark.events.sidecar.stall-timeout", "200ms").set("spark.events.sidecar.restarts.max", "1");
          RecordQueue queue = new RecordQueue(QueueConfig.of(100));
          Sidecar sidecar = sidecar(queue, conf);
          sidecar.start();
          is(sidecar.awaitStarted(), null);
          queue.offer(RecordQueueTest.lifecycle());
          while (!queue.isClosed()) {
            Thread.yield();
          }
          queue.offer(RecordQueueTest.routine());
          sidecar.finish();
          is(sidecar.restarts() + " " + queue.drops.unreported(), "1 {routine=1, unconfirmed=1}");
        });
  }

  /** Script that reads only the hello message, as the child of a wrapper that does not use {@code exec}. */
  private static final String FROZEN_CHILD =
      "#!/bin/sh\n"
          + "read hello\n"
          + "exec 3<&0\n"
          + "sleep 600 <&3 &\n"
          + "echo '{\"kind\":\"ready\"}'\n"
          + "wait\n";

  /** The application ends in time, even if a child of the killed process keeps the full pipe open. */
  @Test
  void aFullPipeThatStaysOpenDoesNotDelayTheEnd() throws Exception {
    withDouble(
        FROZEN_CHILD,
        script -> {
          List<ProcessHandle> before = ProcessHandle.current().descendants().collect(Collectors.toList());
          SparkConf conf = new SparkConf(false).set("spark.events.python", script.toString());
          RecordQueue queue = new RecordQueue(QueueConfig.of(1_000));
          Sidecar sidecar = sidecar(queue, conf.set("spark.events.shutdown.timeout", "500ms"));
          sidecar.start();
          is(sidecar.awaitStarted(), null);
          List<ProcessHandle> started = ProcessHandle.current().descendants().collect(Collectors.toList());
          started.removeAll(before);
          try {
            String text = String.join("", Collections.nCopies(1_000, "x"));
            for (int i = 0; i < 500; i++) {
              queue.offer(new Record("text", Record.Priority.ROUTINE, json -> Record.write(json, "text", text)));
            }
            Thread end = Threads.daemon("end", () -> Threads.untilInterrupted(sidecar::finish));
            end.start();
            end.join(10_000);
            is(started.size() + " " + end.isAlive() + " " + queue.isClosed(), "2 false true");
            started.get(0).onExit().get(10, TimeUnit.SECONDS);
          } finally {
            started.forEach(ProcessHandle::destroyForcibly);
          }
        });
  }
}
