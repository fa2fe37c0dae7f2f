package io.sparkevents;

import com.sun.management.ThreadMXBean;
import io.sparkevents.listener.JobProperties;
import io.sparkevents.listener.JobRecords;
import io.sparkevents.listener.Redaction;
import io.sparkevents.queue.Record;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.locks.LockSupport;
import java.util.function.IntConsumer;
import org.apache.spark.SparkConf;
import org.apache.spark.Success$;
import org.apache.spark.TaskEndReason;
import org.apache.spark.TaskState;
import org.apache.spark.UnknownReason$;
import org.apache.spark.executor.ExecutorMetrics;
import org.apache.spark.executor.ShuffleReadMetrics;
import org.apache.spark.executor.ShuffleWriteMetrics;
import org.apache.spark.executor.TaskMetrics;
import org.apache.spark.scheduler.JobSucceeded$;
import org.apache.spark.scheduler.SparkListenerJobEnd;
import org.apache.spark.scheduler.SparkListenerJobStart;
import org.apache.spark.scheduler.SparkListenerStageCompleted;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.scheduler.SparkListenerTaskStart;
import org.apache.spark.scheduler.StageInfo;
import org.apache.spark.scheduler.TaskInfo;
import org.apache.spark.scheduler.TaskLocality;
import scala.Option;
import scala.collection.immutable.Nil$;

/**
 * Time of a callback on Spark's listener thread, compared with the minimum: capture the values and put
 * them into a bounded queue.
 *
 * <p>Each call is timed separately. Reading the clock adds the same time to both sides and would improve the
 * ratio, so the benchmark measures and prints this time and subtracts it from the medians. Rounds of all variants are
 * interleaved. Every job has a new id, so that the sidecars produce events. The bytes that a call allocates do not
 * depend on other processes. Arguments: the Python of the sidecar, the file of the events.
 */
public final class ListenerBenchmark {
  private static final int ROUNDS = 12;
  private static final int WARM_UP = 4;
  private static final int CALLS = 40_000;
  /** Number of calls in about one micro-batch. Afterwards, a pause lets the sidecar process these calls. */
  private static final int BURST = 64;
  private static final long PAUSE_NANOS = 2_000_000;
  /** A sidecar needs about 20 ms to process the contents of the pipe and mailboxes. */
  private static final long SETTLE_NANOS = 100_000_000;
  private static final int METRICS = 4_096;
  private static final TaskMetrics[] ALL_METRICS = metrics();
  private static final ExecutorMetrics PEAKS = new ExecutorMetrics(new long[] {1L << 30});
  private static final String[] WHATS = {"a job's start", "a job's end"};

  private static final ThreadMXBean THREADS = (ThreadMXBean) ManagementFactory.getThreadMXBean();
  /** Consumes the values read, so that the compiler does not remove the reads. */
  private static volatile long blackHole;

  private final SparkConf conf;
  private final String events;
  /** Spark's events, which are created before a round, so that their creation is not measured. */
  private final SparkListenerJobStart[] starts = new SparkListenerJobStart[CALLS / 2];
  private final SparkListenerJobEnd[] ends = new SparkListenerJobEnd[CALLS / 2];
  private int jobs;

  private ListenerBenchmark(String python, String events) {
    conf = Jobs.conf(python, events, "async-queued");
    conf.set("spark.events.shutdown.timeout", "1s");
    this.events = events;
  }

  @SuppressWarnings("unchecked")
  private static <T> scala.collection.immutable.Seq<T> none() {
    return (scala.collection.immutable.Seq<T>) (Object) Nil$.MODULE$;
  }

  /** Variant of the call with its times. */
  private static final class Variant {
    final String name;
    final boolean flood;
    final IntConsumer call;
    /** Null if the variant makes no call to spark-events. */
    final Alone driver;
    /** For each round, the sorted times of job starts and of job ends. */
    final List<long[][]> rounds = new ArrayList<>();
    long dropped;
    long allocated;

    Variant(String name, boolean flood, Alone driver, IntConsumer call) {
      this.name = name;
      this.flood = flood;
      this.driver = driver;
      this.call = call;
    }

    void round(boolean keep) {
      long before = driver == null ? 0 : driver.queue.drops.total();
      long[][] nanos = new long[WHATS.length][CALLS / 2];
      long allocatedBefore = THREADS.getThreadAllocatedBytes(Thread.currentThread().getId());
      for (int i = 0; i < CALLS; i++) {
        if (!flood && i % BURST == 0) {
          LockSupport.parkNanos(PAUSE_NANOS);
        }
        long start = System.nanoTime();
        call.accept(i);
        nanos[i % 2][i / 2] = System.nanoTime() - start;
      }
      if (keep) {
        allocated += THREADS.getThreadAllocatedBytes(Thread.currentThread().getId()) - allocatedBefore;
        Arrays.stream(nanos).forEach(Arrays::sort);
        rounds.add(nanos);
        dropped += driver == null ? 0 : driver.queue.drops.total() - before;
      }
    }

    /** Return the median over the rounds of each round's quantile. */
    long quantile(int what, double share) {
      return rounds.stream().mapToLong(r -> r[what][(int) (share * (CALLS / 2 - 1))]).sorted().toArray()[
          rounds.size() / 2];
    }
  }

  /** Return settings with a separate file per driver, because writers of one file wait for each other. */
  private SparkConf confOf(String driver) {
    return conf.clone().set("spark.events.reporter.audit.path", events + "." + driver);
  }

  private void callbacks() throws Exception {
    SparkConf withHung = confOf("hung").set("spark.events.reporter.stuck.type", "benchmarks._hung:Hung");
    SparkConf withRules = confOf("rules");
    for (String rule : new String[] {"batch", "progress", "resources", "job", "application", "lag-time"}) {
      withRules.set("spark.events.deadline." + rule, "1h");
    }
    withRules.set("spark.events.deadline.lag", "1000000");
    // By default, the driver replaces a stopped sidecar after a minute.
    SparkConf withoutRestart = confOf("stopped").set("spark.events.sidecar.stall-timeout", "1h");
    try (Alone running = new Alone(confOf("running"));
        Alone rules = new Alone(withRules);
        Alone stopped = new Alone(withoutRestart);
        Alone hung = new Alone(withHung)) {
      stopped.signal("STOP");
      compare(running, rules, stopped, hung);
    }
  }

  private void compare(Alone running, Alone rules, Alone stopped, Alone hung) throws Exception {

    Redaction redaction = new Redaction(Redaction.SPARK_DEFAULT);
    JobRecords records = new JobRecords(record -> {}, false, new JobProperties(redaction));
    ArrayBlockingQueue<Record> bare = new ArrayBlockingQueue<>(CALLS);
    IntConsumer offer = i -> bare.offer(i % 2 == 0 ? records.startRecord(starts[i / 2]) : end(records, ends[i / 2]));
    List<Variant> variants = new ArrayList<>();
    variants.add(new Variant("nothing (the clock alone)", false, null, i -> {}));
    for (boolean flood : new boolean[] {false, true}) {
      String prefix = flood ? "flood: " : "";
      variants.add(new Variant(prefix + "capture + ArrayBlockingQueue.offer", flood, null, offer));
      variants.add(new Variant(prefix + "listener, sidecar runs", flood, running, i -> tell(running.listener, i)));
      variants.add(new Variant(prefix + "listener, all deadline rules on", flood, rules, i -> tell(rules.listener, i)));
      variants.add(new Variant(prefix + "listener, one reporter of two hangs", flood, hung, i -> tell(hung.listener, i)));
      variants.add(new Variant(prefix + "listener, sidecar stopped", flood, stopped, i -> tell(stopped.listener, i)));
    }
    for (int round = 0; round < WARM_UP + ROUNDS; round++) {
      for (Variant variant : variants) {
        prepare(bare);
        // The backlog of the previous round must not slow down this round.
        while (running.queue.size() > 0 || rules.queue.size() > 0) {
          LockSupport.parkNanos(PAUSE_NANOS);
        }
        hung.queue.awaitWritten(10_000);
        LockSupport.parkNanos(SETTLE_NANOS);
        variant.round(round >= WARM_UP);
      }
    }
    for (int what = 0; what < WHATS.length; what++) {
      System.out.println(WHATS[what] + ":");
      print(variants, what);
    }
    for (Alone driver : new Alone[] {running, rules, stopped, hung}) {
      driver.checkItHasLasted();
    }
  }

  private static Record end(JobRecords records, SparkListenerJobEnd event) {
    return records.endRecord(event, JobRecords.failure(event), null);
  }

  private void prepare(ArrayBlockingQueue<Record> bare) {
    bare.clear();
    for (int i = 0; i < starts.length; i++) {
      starts[i] = Jobs.start(jobs);
      ends[i] = Jobs.end(jobs++);
    }
  }

  private void tell(EventsListener listener, int call) {
    if (call % 2 == 0) {
      listener.onJobStart(starts[call / 2]);
    } else {
      listener.onJobEnd(ends[call / 2]);
    }
  }

  private static void print(List<Variant> variants, int what) {
    long tick = variants.get(0).quantile(what, 0.5);
    long base = 1;
    for (Variant variant : variants) {
      long median = variant.quantile(what, 0.5) - tick;
      if (variant.driver == null) {
        base = Math.max(1, median);
      }
      System.out.printf(
          "  %-44s p50 %6d ns  p99 %7d ns  p99.9 %8d ns  ratio of medians %.2f  dropped %.0f %%  %d B%n",
          variant.name,
          variant.quantile(what, 0.5),
          variant.quantile(what, 0.99),
          variant.quantile(what, 0.999),
          (double) median / base,
          100.0 * variant.dropped / (CALLS * ROUNDS),
          variant.allocated / (CALLS * ROUNDS));
    }
  }

  /** Events of a stage's tasks, each of which fails once, is retried with a speculative copy, and succeeds. */
  private static final String[] PHASES = {
    "start", "failing end", "start again", "start of a copy", "end", "end of a copy"
  };

  /**
   * Times all events of one kind of a stage together, in processor time, so that other processes do not count. The
   * metrics of 4,096 tasks, and the events of a large stage, do not fit into the processor's second-level cache.
   */
  private void tasks(int tasks, int rounds) throws Exception {
    try (Alone driver = new Alone(confOf("tasks"))) {
      tasks(driver.listener, tasks, rounds);
      driver.checkItHasLasted();
    }
  }

  private static void tasks(EventsListener listener, int tasks, int rounds) {
    double[][] nanos = new double[PHASES.length + 1][rounds];
    for (int round = -rounds; round < rounds; round++) {
      int stage = round + rounds;
      SparkListenerTaskStart[][] starts = {
        starts(stage, tasks, 0, false), starts(stage, tasks, 1, false), starts(stage, tasks, 2, true)
      };
      SparkListenerTaskEnd[][] ends = {
        ends(stage, starts[0], UnknownReason$.MODULE$, TaskState.FAILED()),
        ends(stage, starts[1], Success$.MODULE$, TaskState.FINISHED()),
        ends(stage, starts[2], UnknownReason$.MODULE$, TaskState.KILLED())
      };
      StageInfo info =
          new StageInfo(stage, 0, "stage", tasks, none(), none(), "", null, none(), Option.empty(), 0, false, 0);
      listener.onStageSubmitted(new SparkListenerStageSubmitted(info, new Properties()));
      long[] took = {
        tell(listener, starts[0]),
        tell(listener, ends[0]),
        tell(listener, starts[1]),
        tell(listener, starts[2]),
        tell(listener, ends[1]),
        tell(listener, ends[2]),
        read(ends[1])
      };
      listener.onStageCompleted(new SparkListenerStageCompleted(info));
      for (int phase = 0; round >= 0 && phase < nanos.length; phase++) {
        nanos[phase][round] = (double) took[phase] / tasks;
      }
    }
    for (int phase = 0; phase < PHASES.length; phase++) {
      print("task " + PHASES[phase], tasks, nanos[phase]);
    }
    print("reading the metrics", tasks, nanos[PHASES.length]);
  }

  private static SparkListenerTaskStart[] starts(int stage, int tasks, int attempt, boolean speculative) {
    SparkListenerTaskStart[] started = new SparkListenerTaskStart[tasks];
    for (int i = 0; i < tasks; i++) {
      TaskInfo task =
          new TaskInfo(
              (long) attempt * tasks + i, i, attempt, i, 1L, "1", "host", TaskLocality.PROCESS_LOCAL(), speculative);
      started[i] = new SparkListenerTaskStart(stage, 0, task);
    }
    return started;
  }

  /** Return metrics as Spark makes them, too many for the processor's caches. */
  private static TaskMetrics[] metrics() {
    TaskMetrics[] made = new TaskMetrics[METRICS];
    for (int i = 0; i < METRICS; i++) {
      made[i] = new TaskMetrics();
      made[i].setExecutorRunTime(i);
      made[i].inputMetrics().setBytesRead(1_000L * i);
    }
    return made;
  }

  private static SparkListenerTaskEnd[] ends(
      int stage, SparkListenerTaskStart[] started, TaskEndReason reason, scala.Enumeration.Value state) {
    SparkListenerTaskEnd[] ended = new SparkListenerTaskEnd[started.length];
    for (int i = 0; i < ended.length; i++) {
      TaskInfo task = started[i].taskInfo();
      task.markFinished(state, 2L + i % 5_000);
      ended[i] = new SparkListenerTaskEnd(stage, 0, "ResultTask", reason, task, PEAKS, ALL_METRICS[i % METRICS]);
    }
    return ended;
  }

  private static long processorNanos() {
    return THREADS.getCurrentThreadCpuTime();
  }

  private static long tell(EventsListener listener, SparkListenerTaskStart[] events) {
    long start = processorNanos();
    for (SparkListenerTaskStart event : events) {
      listener.onTaskStart(event);
    }
    return processorNanos() - start;
  }

  private static long tell(EventsListener listener, SparkListenerTaskEnd[] events) {
    long start = processorNanos();
    for (SparkListenerTaskEnd event : events) {
      listener.onTaskEnd(event);
    }
    return processorNanos() - start;
  }

  /** Times a loop that only reads the values that the totals need: the times of each task, and its metrics. */
  private static long read(SparkListenerTaskEnd[] events) {
    long start = processorNanos();
    long sum = 0;
    for (SparkListenerTaskEnd event : events) {
      TaskInfo task = event.taskInfo();
      TaskMetrics metrics = event.taskMetrics();
      ShuffleReadMetrics read = metrics.shuffleReadMetrics();
      ShuffleWriteMetrics write = metrics.shuffleWriteMetrics();
      sum += task.finishTime() - task.launchTime();
      sum += metrics.executorRunTime() + metrics.executorCpuTime() + metrics.jvmGCTime();
      sum += metrics.executorDeserializeTime() + metrics.resultSerializationTime() + metrics.resultSize();
      sum += metrics.inputMetrics().bytesRead() + metrics.inputMetrics().recordsRead();
      sum += metrics.outputMetrics().bytesWritten() + metrics.outputMetrics().recordsWritten();
      sum += read.totalBytesRead() + read.recordsRead() + read.fetchWaitTime();
      sum += write.bytesWritten() + write.recordsWritten() + write.writeTime();
      sum += metrics.memoryBytesSpilled() + metrics.diskBytesSpilled() + metrics.peakExecutionMemory();
    }
    blackHole = sum;
    return processorNanos() - start;
  }

  private static void print(String what, int tasks, double[] nanos) {
    Arrays.sort(nanos);
    System.out.printf(
        "%-20s (stages of %6d): median %.1f ns, p99 %.1f ns%n",
        what, tasks, nanos[nanos.length / 2], nanos[(int) (0.99 * (nanos.length - 1))]);
  }

  public static void main(String[] arguments) throws Exception {
    ListenerBenchmark benchmark = new ListenerBenchmark(arguments[0], arguments[1]);
    benchmark.tasks(1_000, 200);
    benchmark.tasks(20_000, 50);
    if (arguments.length < 3) {
      benchmark.callbacks();
    }
    System.out.flush();
  }
}
