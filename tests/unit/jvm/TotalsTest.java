package io.sparkevents;

import static io.sparkevents.Checks.is;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.sparkevents.queue.Record;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.spark.Resubmitted$;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkException;
import org.apache.spark.Success$;
import org.apache.spark.TaskEndReason;
import org.apache.spark.TaskState;
import org.apache.spark.UnknownReason$;
import org.apache.spark.executor.ExecutorMetrics;
import org.apache.spark.executor.TaskMetrics;
import org.apache.spark.scheduler.JobFailed;
import org.apache.spark.scheduler.JobSucceeded$;
import org.apache.spark.scheduler.SparkListenerApplicationEnd;
import org.apache.spark.scheduler.SparkListenerApplicationStart;
import org.apache.spark.scheduler.SparkListenerExecutorAdded;
import org.apache.spark.scheduler.SparkListenerExecutorRemoved;
import org.apache.spark.scheduler.SparkListenerJobEnd;
import org.apache.spark.scheduler.SparkListenerStageCompleted;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.scheduler.SparkListenerTaskStart;
import org.apache.spark.scheduler.StageInfo;
import org.apache.spark.scheduler.TaskInfo;
import org.apache.spark.scheduler.TaskLocality;
import org.apache.spark.scheduler.cluster.ExecutorInfo;
import org.junit.jupiter.api.Test;
import scala.Option;
import scala.collection.immutable.Nil$;

/** Tests of the totals of stage attempts and of the application. */
final class TotalsTest {
  private static final long T = 1_000_000;

  /** Listener that collects its records. */
  private static final class Driver {
    final List<Record> records = new ArrayList<>();
    final EventsListener listener;
    final Checks.Recorder destination;

    Driver(long interval) {
      SparkConf conf = new SparkConf(false).set("spark.task.cpus", "2");
      conf.set("spark.events.summary.interval", interval + "ms");
      destination = new Checks.Recorder(conf, end -> {});
      listener = new EventsListener(conf, destination);
      Option<String> none = Option.empty();
      listener.onApplicationStart(
          new SparkListenerApplicationStart("a", none, T, "u", none, Option.empty(), Option.empty()));
    }

    StageInfo submit(int number) {
      StageInfo stage =
          new StageInfo(number, 0, "s", 100, none(), none(), "", null, none(), Option.empty(), 0, false, 0);
      stage.submissionTime_$eq(Option.apply((Object) T));
      listener.onStageSubmitted(new SparkListenerStageSubmitted(stage, new Properties()));
      return stage;
    }

    void complete(StageInfo stage, long time) {
      stage.completionTime_$eq(Option.apply((Object) time));
      listener.onStageCompleted(new SparkListenerStageCompleted(stage));
    }

    void end(long time) {
      listener.onApplicationEnd(new SparkListenerApplicationEnd(time, Option.empty()));
    }

    List<JsonNode> of(String kind) throws Exception {
      records.addAll(destination.take());
      List<JsonNode> lines = new ArrayList<>();
      for (Record record : records.stream().filter(one -> one.kind.equals(kind)).collect(Collectors.toList())) {
        lines.add(new ObjectMapper().readTree(record.line()));
      }
      return lines;
    }

    JsonNode only(String kind) throws Exception {
      is(of(kind).size(), 1);
      return of(kind).get(0);
    }
  }

  @SuppressWarnings("unchecked")
  private static <E> scala.collection.immutable.Seq<E> none() {
    return (scala.collection.immutable.Seq<E>) (Object) Nil$.MODULE$;
  }

  private static void ended(
      Driver driver, int index, long millis, TaskEndReason reason, boolean speculative, TaskMetrics metrics) {
    TaskInfo task =
        new TaskInfo(index, index, 1, index, T, "e" + index, "h", TaskLocality.PROCESS_LOCAL(), speculative);
    boolean succeeded = reason == Success$.MODULE$ || reason == Resubmitted$.MODULE$;
    task.markFinished(succeeded ? TaskState.FINISHED() : TaskState.FAILED(), T + millis);
    ExecutorMetrics peaks = new ExecutorMetrics(new long[] {1_000 + index, 2_000 + index});
    driver.listener.onTaskEnd(new SparkListenerTaskEnd(0, 0, "ResultTask", reason, task, peaks, metrics));
  }

  private static void copied(Driver driver, int index) {
    TaskInfo task = new TaskInfo(100 + index, index, 1, index, T, "e", "h", TaskLocality.PROCESS_LOCAL(), true);
    driver.listener.onTaskStart(new SparkListenerTaskStart(0, 0, task));
  }

  private static TaskMetrics metrics(long run) {
    TaskMetrics metrics = new TaskMetrics();
    metrics.setExecutorRunTime(run);
    metrics.setExecutorCpuTime(700_000);
    metrics.setPeakExecutionMemory(run);
    metrics.inputMetrics().setBytesRead(10 * run);
    metrics.shuffleReadMetrics().incRemoteBytesRead(3);
    metrics.shuffleReadMetrics().incLocalBytesRead(4);
    return metrics;
  }

  private static String values(JsonNode totals, String... names) {
    List<String> values = new ArrayList<>();
    for (String name : names) {
      values.add(totals.get(name).asText());
    }
    return String.join(" ", values);
  }

  /** Failed, speculative and late attempts are counted correctly, including attempts without metrics. */
  @Test
  void attemptsAreCountedOnce() throws Exception {
    Driver driver = new Driver(0);
    StageInfo stage = driver.submit(0);
    ended(driver, 0, 100, Success$.MODULE$, false, metrics(60));
    copied(driver, 1);
    // The original of this copy ends first, and the copy ends after the stage, or never.
    copied(driver, 0);
    ended(driver, 1, 300, Success$.MODULE$, true, metrics(250));
    ended(driver, 2, 40, UnknownReason$.MODULE$, false, null);
    // A resubmission repeats the end of an attempt.
    ended(driver, 0, 100, Resubmitted$.MODULE$, false, metrics(60));
    driver.complete(stage, T + 400);
    ended(driver, 3, 500, Success$.MODULE$, false, metrics(1));
    driver.end(T + 900);
    JsonNode totals = driver.only("stage_completed").get("totals");
    is(values(totals, "tasks", "failed", "killed", "task_ms", "retried_ms"), "3 1 0 440 40");
    is(values(totals, "speculative", "speculative_won"), "2 1");
    is(values(totals, "run_ms", "cpu_ms", "scheduler_delay_ms", "peak_execution_memory"), "310 1 90 250");
    is(values(totals, "input_bytes", "shuffle_read_bytes", "largest_input_bytes"), "3100 14 2507");
    is(values(totals, "slowest_task", "slowest_attempt", "slowest_executor", "slowest_host"), "1 1 e1 h");
    is(values(totals, "started", "ended", "duration_max_ms"), T + " " + (T + 400) + " 300");
    JsonNode application = driver.only("application_totals");
    is(values(application, "final", "stages", "stages_failed", "busy_ms"), "true 1 0 1880");
    is(values(application.get("totals"), "tasks", "task_ms", "run_ms", "cpu_ms"), "4 940 311 2");
    is(values(application, "peak_executor_heap_bytes", "peak_executor_offheap_bytes"), "1003 2003");
    is(values(totals, "cpus"), "2");
  }

  /** Quantiles equal those of the replay's sketch: tests/unit/records/test_totals.py contains the same numbers. */
  @Test
  void quantilesAreThoseOfTheReplay() throws Exception {
    Driver driver = new Driver(0);
    StageInfo stage = driver.submit(0);
    long value = 1;
    for (int task = 0; task < 99; task++) {
      value = value * 48_271 % 2_147_483_647;
      ended(driver, task, value >> (task % 31), Success$.MODULE$, false, metrics(value));
    }
    driver.complete(stage, T);
    JsonNode totals = driver.only("stage_completed").get("totals");
    is(values(totals, "duration_p50_ms", "duration_p95_ms", "duration_max_ms", "median_input_bytes"), "48128 329252864 1500063655 11005853696");
  }

  private static SparkListenerExecutorAdded added(long time, String executor, int cores) {
    ExecutorInfo info =
        new ExecutorInfo(
            "h", cores, scala.collection.immutable.Map$.MODULE$.empty(), scala.collection.immutable.Map$.MODULE$.empty());
    return new SparkListenerExecutorAdded(time, executor, info);
  }

  /** Starts {@code count} tasks of the first stage at {@code T}. */
  private static void startTasks(Driver driver, int count) {
    for (int index = 0; index < count; index++) {
      TaskInfo task = new TaskInfo(index, index, 1, index, T, "e", "h", TaskLocality.PROCESS_LOCAL(), false);
      driver.listener.onTaskStart(new SparkListenerTaskStart(0, 0, task));
    }
  }

  /** Core time sums each executor's cores times the time from its addition to its removal or the end. */
  @Test
  void coresAreIntegrated() throws Exception {
    Driver driver = new Driver(0);
    driver.listener.onExecutorAdded(added(T + 100, "1", 4));
    driver.listener.onExecutorAdded(added(T + 200, "2", 4));
    driver.listener.onExecutorRemoved(new SparkListenerExecutorRemoved(T + 300, "1", "lost"));
    driver.end(T + 400);
    is(values(driver.only("application_totals"), "core_ms", "cores_now"), (400 + 800 + 400) + " 4");
  }

  /** A running task is busy until the time of the record. If its stage has ended, the task is counted when it ends. */
  @Test
  void runningTasksAreBusyUntilTheirStageEnds() throws Exception {
    Driver driver = new Driver(1_000);
    StageInfo stage = driver.submit(0);
    startTasks(driver, 2);
    ended(driver, 0, 300, Success$.MODULE$, false, null);
    // The start of this task is missing.
    ended(driver, 3, 40, Success$.MODULE$, false, null);
    driver.listener.onJobEnd(new SparkListenerJobEnd(0, T + 1_000, JobSucceeded$.MODULE$));
    driver.complete(stage, T + 1_500);
    driver.listener.onJobEnd(new SparkListenerJobEnd(0, T + 2_000, JobSucceeded$.MODULE$));
    ended(driver, 1, 2_500, Success$.MODULE$, false, null);
    driver.end(T + 2_600);
    List<Long> busy = new ArrayList<>();
    for (JsonNode totals : driver.of("application_totals")) {
      busy.add(totals.get("busy_ms").asLong());
    }
    is(busy, List.of(2 * 1_340L, 2 * 340L, 2 * 2_840L));
  }

  /** Tasks whose ends are missing count as running, but the used core time never exceeds the available core time. */
  @Test
  void aLostEndOfATaskKeepsNoMoreThanAllCoresBusy() throws Exception {
    Driver driver = new Driver(0);
    driver.listener.onExecutorAdded(added(T, "e", 2));
    driver.submit(0);
    startTasks(driver, 100);
    driver.end(T + 1_000);
    is(values(driver.only("application_totals"), "busy_ms", "core_ms"), "2000 2000");
  }

  /** Spark reports the end of a failed barrier stage twice; the second end belongs to no known attempt. */
  @Test
  void repeatedEndsCountOnce() throws Exception {
    Driver driver = new Driver(0);
    StageInfo stage = driver.submit(0);
    stage.failureReason_$eq(Option.apply("x"));
    driver.complete(stage, T);
    driver.complete(stage, T);
    driver.end(T);
    is(values(driver.only("application_totals"), "stages", "stages_failed"), "1 1");
  }

  /** Work that was cancelled has not failed. The messages are those of test_totals.py. */
  @Test
  void cancelledWorkIsCountedApart() throws Exception {
    Driver driver = new Driver(0);
    String[] messages = {
      "Job 0 cancelled part of cancelled job group 125ab4aa",
      "[SPARK_JOB_CANCELLED] Job 0 cancelled The corresponding Thriftserver query has failed. SQLSTATE: XXKDA",
      "Job aborted due to stage failure: x\nJob 0 cancelled",
    };
    for (int i = 0; i < messages.length; i++) {
      StageInfo stage = driver.submit(i);
      stage.failureReason_$eq(Option.apply(messages[i]));
      driver.complete(stage, T);
      JobFailed failed = new JobFailed(new SparkException(messages[i]));
      driver.listener.onJobEnd(new SparkListenerJobEnd(i, T, failed));
    }
    driver.end(T);
    JsonNode totals = driver.only("application_totals");
    is(values(totals, "jobs", "jobs_failed", "jobs_cancelled"), "3 1 2");
    is(values(totals, "stages", "stages_failed", "stages_cancelled"), "3 1 2");
  }

  /** The peaks of a failure are those of the executor of the failed task; the highest of any executor without a task. */
  @Test
  void peaksAreThoseOfTheFailedExecutor() throws Exception {
    String[] reasons = {
      "Lost task 0.0 in stage 0.0 (TID 0) (h executor e0): a.B", "Lost task (TID 7) (h executor e7): a.B", "a.B"
    };
    String[] expected = {"e0 1000 2000 0", "e7 0 0 0", " 1001 2001 0"};
    for (int i = 0; i < reasons.length; i++) {
      Driver driver = new Driver(0);
      StageInfo stage = driver.submit(0);
      ended(driver, 0, 100, Success$.MODULE$, false, null);
      ended(driver, 1, 100, Success$.MODULE$, false, null);
      stage.failureReason_$eq(Option.apply(reasons[i]));
      driver.complete(stage, T + 200);
      JsonNode peaks = driver.only("stage_completed").get("peaks");
      is(values(peaks, "executor", "executor_heap", "executor_offheap", "executor_python"), expected[i]);
    }
  }

  /** After each interval, totals are recorded at the next end of a stage or job. They include running stages. */
  @Test
  void totalsFollowTheInterval() throws Exception {
    Driver driver = new Driver(1_000);
    driver.submit(0);
    StageInfo second = driver.submit(1);
    ended(driver, 0, 100, Success$.MODULE$, false, null);
    driver.complete(second, T + 999);
    is(driver.of("application_totals").size(), 0);
    driver.listener.onJobEnd(new SparkListenerJobEnd(0, T + 1_000, JobSucceeded$.MODULE$));
    driver.listener.onJobEnd(new SparkListenerJobEnd(1, T + 1_999, JobSucceeded$.MODULE$));
    JsonNode totals = driver.only("application_totals");
    is(values(totals, "final", "jobs", "stages"), "false 1 1");
    is(totals.get("totals").get("tasks").asLong(), 1);
    // Control: without an interval, there are no totals before the application's end.
    Driver quiet = new Driver(0);
    quiet.listener.onJobEnd(new SparkListenerJobEnd(0, T + 10_000_000, JobSucceeded$.MODULE$));
    is(quiet.of("application_totals").size(), 0);
  }
}
