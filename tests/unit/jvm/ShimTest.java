package io.sparkevents;

import static io.sparkevents.Checks.is;
import static io.sparkevents.Checks.takesAtMost;

import com.fasterxml.jackson.databind.JsonNode;
import io.sparkevents.config.Settings;
import io.sparkevents.listener.ApplicationTotals;
import io.sparkevents.listener.JobProperties;
import io.sparkevents.listener.RecordSink;
import io.sparkevents.listener.Redaction;
import io.sparkevents.listener.RunningWork;
import io.sparkevents.listener.StageAttempt;
import io.sparkevents.listener.Stages;
import io.sparkevents.listener.TaskFailures;
import io.sparkevents.metrics.Statistics;
import io.sparkevents.queue.Record;
import io.sparkevents.sidecar.Interpreter;
import io.sparkevents.sidecar.Restarts;
import java.io.RandomAccessFile;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.spark.ExceptionFailure;
import org.apache.spark.FetchFailed;
import org.apache.spark.SparkConf;
import org.apache.spark.TaskEndReason;
import org.apache.spark.UnknownReason$;
import org.apache.spark.storage.BlockManagerId;
import org.junit.jupiter.api.Test;
import scala.Option;

/** Tests of the shim's smaller classes. */
final class ShimTest {
  /** Collector of the records of status changes. */
  private static final class Recorder {
    final List<Record> records = new ArrayList<>();
    final Stages stages = new Stages(records::add);

    void submitted(int stage, int tasks) {
      stages.submitted(new StageAttempt(stage, 0, "stage", tasks, 1, new String[0], true));
    }

    void started(int stage, int index, long time) {
      stages.taskStarted(stage, 0, index, time);
    }

    void ended(int stage, int index, Stages.Outcome outcome, long time) {
      stages.taskEnded(stage, 0, index, outcome, UnknownReason$.MODULE$, 0, time);
    }

    /** Returns the records since the last call as strings of the form "status@time running+finished". */
    String take() throws Exception {
      List<String> texts = new ArrayList<>();
      for (Record record : records) {
        JsonNode line = Record.JSON.readTree(record.line());
        String counts = line.path("running").asText() + "+" + line.path("finished").asText();
        texts.add(line.path("status").asText() + "@" + line.path("time").asText() + " " + counts);
      }
      records.clear();
      return String.join(", ", texts);
    }
  }

  /** A snapshot contains only stages that Spark lists as active, because the event of a stage's end may be dropped. */
  @Test
  void aSnapshotOmitsStagesThatHaveEnded() throws Exception {
    Recorder checks = new Recorder();
    JobProperties properties = new JobProperties(new Redaction(Redaction.SPARK_DEFAULT));
    for (int stage = 1; stage <= 2; stage++) {
      checks.stages.submitted(
          new StageAttempt(stage, 0, "stage", 2, 1, JobProperties.select(new Properties()), true));
    }
    ApplicationTotals totals = new ApplicationTotals(new SparkConf(false), 0, checks.stages);
    RunningWork work = new RunningWork(checks.stages, properties, totals);
    JsonNode stages = Record.JSON.readTree(Record.json(work.snapshot(Collections.singleton(2)))).path("stages");
    is(stages.size() + " " + stages.path(0).path("stage_id").asInt(), "1 2");
  }

  /** With speculation, failures and resubmission, each change is recorded once, and the counts are correct. */
  @Test
  void stageEdges() throws Exception {
    Recorder checks = new Recorder();
    checks.submitted(1, 2);
    checks.started(1, 0, 10);
    is(checks.take(), "");
    checks.started(1, 1, 11);
    is(checks.take(), "ALL_RUNNING_OR_FINISHED@11 2+0");
    checks.started(1, 1, 12); // a speculative attempt
    checks.ended(1, 1, Stages.Outcome.SUCCEEDED, 13);
    checks.ended(1, 1, Stages.Outcome.KILLED, 14); // the other attempt of the task
    is(checks.take(), "");
    checks.ended(1, 0, Stages.Outcome.SUCCEEDED, 15);
    is(checks.take(), "ALL_FINISHED@15 0+2");
    checks.stages.executorRemoved("7", 20);
    checks.stages.outputLost(1, 0, 0, "7");
    is(checks.take(), "NOT_ALL_RUNNING_OR_FINISHED@20 0+1");
    checks.started(1, 0, 21);
    is(checks.take(), "ALL_RUNNING_OR_FINISHED@21 1+1");
    checks.ended(1, 0, Stages.Outcome.SUCCEEDED, 22);
    is(checks.take(), "ALL_FINISHED@22 0+2");
    checks.started(1, 2, 23); // unknown task
    checks.stages.taskStarted(1, 1, 0, 24); // unknown attempt
    is(checks.take(), "");
    is(checks.stages.completed(1, 0, 25).tasks.failed(), 0);
  }

  /** A stage attempt keeps the last task exceptions and the owner of missing shuffle output. */
  @Test
  void taskFailures() {
    Recorder checks = new Recorder();
    checks.submitted(1, 1);
    for (int number = 0; number < 17; number++) {
      failed(checks, 0, failure("row " + number));
    }
    failed(checks, 1, failure("row 17")); // unknown attempt
    failed(checks, 0, new FetchFailed(BlockManagerId.apply("2", "host-2", 7337, Option.empty()), 0, 0, 0, 0, ""));
    failed(checks, 0, new FetchFailed(null, 0, 0, 0, 0, "")); // the map output itself is missing
    TaskFailures failures = checks.stages.completed(1, 0, 3).failures;
    is(failures.trace("row 0"), null);
    is(failures.trace("row 1"), "a.B: row 1");
    is(failures.trace("row 16"), "a.B: row 16");
    is(failures.trace("row 17"), null);
    is(failures.lostExecutor() + " on " + failures.lostHost(), "2 on host-2");
  }

  private static void failed(Recorder checks, int attempt, TaskEndReason reason) {
    checks.stages.taskEnded(1, attempt, 0, Stages.Outcome.FAILED, reason, 0, 2);
  }

  private static ExceptionFailure failure(String message) {
    return new ExceptionFailure(
        "a.B", message, new StackTraceElement[0], "a.B: " + message, Option.empty(), null, null, null);
  }

  /** Lost output changes the status with the timestamp of the executor's loss, not of the task's completion. */
  @Test
  void lostOutput() throws Exception {
    for (int rule = 0; rule < 4; rule++) {
      Recorder checks = new Recorder();
      checks.submitted(1, 2);
      checks.submitted(2, 2);
      checks.started(1, 0, 10);
      checks.started(1, 1, 10);
      checks.ended(1, 0, Stages.Outcome.SUCCEEDED, 11);
      checks.take();
      checks.stages.outputLost(1, 0, 0, "7");
      checks.stages.executorRemoved("8", 49); // another executor
      checks.started(2, 0, 50); // another stage
      is(checks.take(), "");
      String lost = "NOT_ALL_RUNNING_OR_FINISHED@60 1+0";
      if (rule == 0) {
        checks.stages.executorRemoved("7", 60);
        is(checks.take(), lost);
        checks.stages.outputLost(1, 0, 0, "7"); // this loss has been applied already
      } else if (rule == 1) {
        checks.started(1, 0, 60);
        is(checks.take(), lost + ", ALL_RUNNING_OR_FINISHED@60 2+0");
        checks.stages.executorRemoved("7", 61);
      } else if (rule == 2) {
        checks.ended(1, 1, Stages.Outcome.FAILED, 60);
        is(checks.take(), lost);
      } else {
        checks.stages.completed(1, 0, 60);
        is(checks.take(), lost);
      }
      checks.stages.completed(1, 0, 70);
      is(checks.take(), "");
    }
  }

  /** Properties are redacted by key and value, as in Spark, before the driver sends them. */
  @Test
  void redaction() throws Exception {
    java.util.Properties local = new java.util.Properties();
    local.setProperty("spark.job.description", "load with password=hunter2");
    local.setProperty("spark.jobGroup.id", "nightly");
    local.setProperty("spark.hadoop.fs.s3a.secret.key", "hunter3");
    JobProperties properties = new JobProperties(new Redaction(Redaction.SPARK_DEFAULT));
    String line = line(properties, local);
    is(line.contains("hunter"), false);
    is(line.contains("*********(redacted)"), true);
    is(line.contains("nightly"), true);
    // The user's pattern replaces Spark's pattern, as in Spark.
    is(line(new JobProperties(new Redaction("nightly")), local).contains("hunter2"), true);
    is(line(new JobProperties(new Redaction("nightly")), local).contains("nightly"), false);
    // With an invalid pattern, every value is redacted.
    is(line(new JobProperties(new Redaction("[")), local).contains("nightly"), false);
  }

  private static String line(JobProperties properties, java.util.Properties local) throws Exception {
    String[] selected = JobProperties.select(local);
    return new String(Record.json(json -> Record.write(json, "properties", properties.redacted(selected))), "UTF-8");
  }

  /** Pauses double up to 5 s. Deaths beyond the limit end the restarts; deaths before the window do not count. */
  @Test
  void restarts() {
    Restarts restarts = new Restarts(10, 600_000);
    List<Long> pauses = new ArrayList<>();
    for (int i = 0; i < 11; i++) {
      pauses.add(restarts.nextPauseMillis(i));
    }
    is(pauses, "[100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000, 5000, -1]");
    is(restarts.nextPauseMillis(601_000_000_000L), 100);
    is(restarts.count(), 11);
    is(new Restarts(0, 1).nextPauseMillis(5), -1);
    Restarts many = new Restarts(100, 600_000);
    for (int i = 0; i < 99; i++) {
      many.nextPauseMillis(i);
    }
    is(many.nextPauseMillis(99), 5_000);
  }

  /** The shim parses its settings leniently, because the sidecar reports invalid values. */
  @Test
  void settings() {
    SparkConf conf = new SparkConf(false);
    conf.set("spark.events.sidecar.restarts.max", "3").set("spark.events.sidecar.restarts.window", "2 min");
    conf.set("spark.events.shutdown.timeout", "soon").set("spark.events.dispatcher.queue.size", "-5");
    Settings settings = Settings.read(conf, Collections.emptyMap());
    is(settings.mostRestarts, 3);
    is(settings.restartsWindowMillis, 120_000);
    is(settings.shutdownTimeoutMillis, 10_000);
    is(settings.queueSize, 1);
    is(settings.waitsForAny, false);
    Settings none = Settings.read(new SparkConf(false), Collections.emptyMap());
    is(none.mostRestarts + " " + none.restartsWindowMillis + " " + none.queueSize, "10 600000 2048");
  }

  private static Settings settings(Map<String, String> environment, String... pairs) {
    SparkConf conf = new SparkConf(false);
    for (int i = 0; i < pairs.length; i += 2) {
      conf.set("spark.events." + pairs[i], pairs[i + 1]);
    }
    return Settings.read(conf, environment);
  }

  /** The settings that the shim needs may be references, in the forms that the sidecar accepts. */
  @Test
  void references() throws Exception {
    Path file = Files.createTempFile("reference", "");
    try {
      Map<String, String> environment = new HashMap<>();
      environment.put("GUARANTEE", "guaranteed");
      environment.put("UNIT", "s");
      environment.put("ODD", "$1\\${env:UNIT}");
      String of = "${file:" + file + "}";
      String guarantee = "reporter.audit.delivery.guarantee";
      String type = "dispatcher.type";
      is(settings(environment, guarantee, "${env:GUARANTEE}", type, "async-queued").waitsForAny, true);
      is(settings(environment, guarantee, "at-least-once", type, "async-queued").waitsForAny, false);
      // The value may mean "guaranteed". The sidecar may be able to resolve the value and decides when it is ready.
      is(settings(environment, guarantee, "${env:NONE}", type, "async-queued").waitsForAny, true);
      is(settings(environment, "shutdown.timeout", "2${env:UNIT}").shutdownTimeoutMillis, 2_000);
      is(settings(environment, "python", "/${env:ODD}/${env:UNIT}").python, "/$1\\${env:UNIT}/s");
      for (String text : new String[] {"async-queued", "async-queued\n", "async-queued\r\n"}) {
        Files.writeString(file, text);
        is(settings(environment, type, of).waitsForAny, false);
        is(settings(environment, type, of).given.all().iterator().next().value, of); // the sidecar gets the value as written
      }
      Files.writeString(file, "async-queued\n\n");
      is(settings(environment, type, of).waitsForAny, true);
      Files.write(file, new byte[] {(byte) 0xff});
      is(settings(environment, "required", of, "dispatcher.queue.size", of).required, false);
      is(settings(environment, "dispatcher.queue.size", "${file:/nowhere}").queueSize, 2048);
      is(settings(environment, "dispatcher.queue.size", "${file:" + file.getParent() + "}").queueSize, 2048);
      SparkConf conf = new SparkConf(false).set("spark.events.python", "${env:GUARANTEE}/python");
      String named = Interpreter.candidates(Settings.read(conf, environment), conf, environment).get(0).toString();
      is(named, "${env:GUARANTEE}/python (from spark.events.python)");
    } finally {
      Files.delete(file);
    }
  }

  /** References are resolved when the settings are read, because their targets may change or become unavailable. */
  @Test
  void referencesAreReadOnce() throws Exception {
    Path file = Files.createTempFile("reference", "");
    try {
      Files.writeString(file, "2s");
      String of = "${file:" + file + "}";
      Settings settings = settings(Collections.emptyMap(), "shutdown.timeout", of, "dispatcher.sync.timeout", of);
      Files.writeString(file, "3s");
      is(settings.shutdownTimeoutMillis, 2_000);
    } finally {
      Files.delete(file);
    }
  }

  /** Settings of {@code spark_events.start} replace settings of the application. */
  @Test
  void overrides() {
    SparkConf conf = new SparkConf(false).set("spark.events.shutdown.timeout", "2s");
    Map<String, String> given = Collections.singletonMap("events.shutdown.timeout", "3s");
    Settings settings = new Settings(conf, Collections.emptyMap(), given);
    is(settings.shutdownTimeoutMillis + " " + settings.given.all().size(), "3000 1");
  }

  /** Every setting that the shim needs may be a reference. */
  @Test
  void everyNeededSettingMayBeAReference() {
    Map<String, String> environment = new HashMap<>();
    environment.put("NUMBER", "7");
    environment.put("TRUE", "true");
    environment.put("FALSE", "false");
    environment.put("QUEUED", "async-queued");
    Settings settings =
        settings(
            environment,
            "required", "${env:TRUE}",
            "sidecar.enabled", "${env:FALSE}",
            "python", "/p${env:NUMBER}",
            "dispatcher.type", "${env:QUEUED}",
            "dispatcher.queue.size", "${env:NUMBER}",
            "sidecar.restarts.max", "${env:NUMBER}",
            "sidecar.restarts.window", "${env:NUMBER}ms",
            "dispatcher.sync.timeout", "${env:NUMBER}ms",
            "shutdown.timeout", "${env:NUMBER}ms",
            "sidecar.start-timeout", "${env:NUMBER}ms");
    is(settings.required + " " + settings.sidecarEnabled + " " + settings.waitsForAny, "true false false");
    is(settings.python + " " + settings.queueSize + " " + settings.mostRestarts, "/p7 7 7");
    is(settings.restartsWindowMillis + " " + settings.syncTimeoutMillis, "7 7");
    is(settings.shutdownTimeoutMillis + " " + settings.startTimeoutMillis, "7 7");
  }

  /** A file that is larger than the heap counts as unreadable. */
  @Test
  void aFileThatIsTooLarge() throws Exception {
    Path file = Files.createTempFile("large", "");
    try {
      try (RandomAccessFile large = new RandomAccessFile(file.toFile(), "rw")) {
        large.setLength(3L << 30); // sparse: uses no disk space
      }
      is(settings(Collections.emptyMap(), "required", "${file:" + file + "}").required, false);
    } finally {
      Files.delete(file);
    }
  }

  /** The shim does not read a pipe: only one reader receives its content, and a read may block forever. */
  @Test
  void aPipeIsNotRead() throws Exception {
    Path pipe = Files.createTempDirectory("pipes").resolve("pipe");
    try {
      is(new ProcessBuilder("mkfifo", pipe.toString()).start().waitFor(), 0);
      String of = "${file:" + pipe + "}";
      takesAtMost(10_000, () -> is(settings(new HashMap<>(), "required", of).required, false));
      String guarantee = "reporter.audit.delivery.guarantee";
      takesAtMost(10_000, () -> is(settings(new HashMap<>(), guarantee, of).waitsForAny, true));
    } finally {
      Files.delete(pipe);
      Files.delete(pipe.getParent());
    }
  }

  /** A Python interpreter that the user sets is the only candidate. */
  @Test
  void interpreters() {
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

  /** Counters continue when a new sidecar counts from 0, but gauges do not. A value that is not a number is 0. */
  @Test
  void statistics() {
    Statistics statistics = new Statistics();
    List<String> seen = new ArrayList<>();
    Map<String, Statistics.Reporter> reporters = new HashMap<>();
    statistics.observe((name, reporter) -> { seen.add(name); reporters.put(name, reporter); });
    statistics.receive(stats("delivered", 5, "spooled", 2, "breaker", "half_open"));
    statistics.receive(stats("delivered", 6, "spooled", 3, "breaker", "open", "dropped.rejected", 2));
    is(reporters.get("a").breakerState(), 2);
    is(statistics.before(), "{a={}}");
    statistics.sidecarStarted();
    is(new TreeMap<>(statistics.before().get("a")), "{breaker=2, delivered=6, dropped.rejected=2}");
    // A sidecar that dies before sending its state does not reset the circuit breaker.
    statistics.sidecarStarted();
    is(statistics.before().get("a").get("breaker"), 2L);
    is(reporters.get("a").count("delivered") + " " + reporters.get("a").level("spooled"), "6 0.0");
    statistics.receive(stats("delivered", 1, "spooled", "many", "dropped", 4));
    is(reporters.get("a").count("delivered") + " " + reporters.get("a").level("spooled"), "7 0.0");
    is(reporters.get("a").breakerState() + " " + statistics.dropped(), "0 4");
    statistics.sidecarStarted();
    is(new TreeMap<>(statistics.before().get("a")), "{breaker=0, delivered=7, dropped=4, dropped.rejected=2}");
    is(seen, "[a]");
  }

  private static Map<?, ?> stats(Object... numbers) {
    Map<Object, Object> one = new HashMap<>();
    for (int i = 0; i < numbers.length; i += 2) {
      one.put(numbers[i], numbers[i + 1]);
    }
    return Collections.singletonMap("reporters", Collections.singletonMap("a", one));
  }

  /** Even if the outcome and numbers of the configuration are unreadable, the application's end causes the last record. */
  @Test
  void anUnreadableOutcomeStillEndsTheApplication() throws Exception {
    List<String> recorded = new ArrayList<>();
    SparkConf conf = new SparkConf(false);
    conf.set("spark.task.cpus", "${x}").set("spark.stage.maxConsecutiveAttempts", "2 ");
    Checks.Recorder destination =
        new Checks.Recorder(conf, end -> recorded.add("closed with " + end.record(false).kind));
    new EventsListener(conf, destination).onApplicationEnd(null);
    is(recorded, "[closed with application_end]");
    is(RecordQueueTest.kinds(destination.take()), "d1"); // the losses
  }

  /** Every Spark event that cannot be recorded is counted, and the first one is logged. */
  @Test
  void everyUnreadableEventIsCounted() throws Exception {
    SparkConf conf = new SparkConf(false);
    Checks.Recorder destination = new Checks.Recorder(conf, end -> {});
    EventsListener listener = new EventsListener(conf, destination);
    List<String> logged =
        Checks.logged(
            RecordSink.class,
            () -> {
              listener.onJobStart(null);
              listener.onTaskStart(null);
              listener.onTaskEnd(null);
              listener.onOtherEvent(null);
            });
    is(destination.queue.drops.total() + " " + destination.queue.drops.unreported(), "4 {event=4}");
    is(logged.size() + " " + logged.get(0).startsWith("ERROR [spark-events] cannot record a Spark event"), "1 true");
    List<Record> accounts = destination.take();
    String line = new String(accounts.get(0).line(), "UTF-8");
    is(line.contains("\"kind\":\"dropped\"") && line.contains("\"where\":\"unwritable\",\"records\":{\"event\":4}"), true);
  }
}
