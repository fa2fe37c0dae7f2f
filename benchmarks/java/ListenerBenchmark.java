package io.sparkevents;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.locks.LockSupport;
import java.util.function.IntConsumer;
import java.util.function.IntFunction;
import org.apache.spark.SparkConf;
import org.apache.spark.Success$;
import org.apache.spark.TaskEndReason;
import org.apache.spark.TaskState;
import org.apache.spark.UnknownReason$;
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
 * What a callback costs Spark's listener thread, beside what cannot be avoided: to capture the values,
 * and to put them into a bounded queue.
 *
 * <p>Each call is timed by itself; the clock's own cost is in both sides, which makes the ratio look
 * better than it is, so it is measured, printed, and taken off the medians. Rounds of all variants are
 * interleaved. Arguments: the Python of the sidecar, the folder of spark_events.
 */
public final class ListenerBenchmark {
  private static final int ROUNDS = 12;
  private static final int WARM_UP = 4;
  private static final int CALLS = 40_000;
  /** A burst is what a micro-batch makes; then the sidecar has time to take it. */
  private static final int BURST = 64;
  private static final long PAUSE_NANOS = 2_000_000;

  private final SparkConf conf;
  private final SparkListenerJobStart jobStart;
  private final SparkListenerJobEnd jobEnd;

  private ListenerBenchmark(String python, String events) {
    conf = Jobs.conf(python, events, "async-queued");
    conf.set("spark.events.shutdown.timeout", "1s");
    jobStart = new SparkListenerJobStart(1, 1L, none(), Jobs.properties());
    jobEnd = new SparkListenerJobEnd(1, 1L, JobSucceeded$.MODULE$);
  }

  @SuppressWarnings("unchecked")
  private static <T> scala.collection.immutable.Seq<T> none() {
    return (scala.collection.immutable.Seq<T>) (Object) Nil$.MODULE$;
  }

  /** One way of calling; the times of its calls. */
  private static final class Variant {
    final String name;
    final IntConsumer call;
    final Runnable before;
    final Runnable pause;
    final List<long[]> rounds = new ArrayList<>();

    Variant(String name, Runnable before, IntConsumer call, Runnable pause) {
      this.name = name;
      this.before = before;
      this.call = call;
      this.pause = pause;
    }

    void round(boolean keep) {
      before.run();
      long[] nanos = new long[CALLS];
      for (int i = 0; i < CALLS; i++) {
        if (i % BURST == 0) {
          pause.run();
        }
        long start = System.nanoTime();
        call.accept(i);
        nanos[i] = System.nanoTime() - start;
      }
      Arrays.sort(nanos);
      if (keep) {
        rounds.add(nanos);
      }
    }

    /** The median over the rounds of each round's quantile. */
    long quantile(double share) {
      return rounds.stream().mapToLong(r -> r[(int) (share * (CALLS - 1))]).sorted().toArray()[rounds.size() / 2];
    }
  }

  private void callbacks() throws Exception {
    Redaction redaction = new Redaction(Redaction.SPARK_DEFAULT);
    Records records = new Records(conf, redaction, new JobProperties(redaction));
    EventsListener running = new EventsListener(conf);
    ProcessHandle first = ProcessHandle.current().children().findFirst().get();
    EventsListener stopped = new EventsListener(conf.clone());
    ProcessHandle second = ProcessHandle.current().children().filter(p -> !p.equals(first)).findFirst().get();
    signal("STOP", second);
    SparkConf withHung = conf.clone();
    withHung.set("spark.events.reporter.stuck.type", "benchmarks._hung:Hung");
    EventsListener hung = new EventsListener(withHung);

    System.out.println("a job's start:");
    compare(
        i -> records.jobStart(jobStart),
        i -> running.onJobStart(jobStart),
        i -> hung.onJobStart(jobStart),
        i -> stopped.onJobStart(jobStart));
    System.out.println("a job's end:");
    compare(
        i -> records.jobEnd(jobEnd),
        i -> running.onJobEnd(jobEnd),
        i -> hung.onJobEnd(jobEnd),
        i -> stopped.onJobEnd(jobEnd));
    ProcessHandle.current().children().forEach(ProcessHandle::destroyForcibly);
  }

  private static void compare(
      IntFunction<Record> capture, IntConsumer toRunning, IntConsumer toHung, IntConsumer toStopped) {
    ArrayBlockingQueue<Record> bare = new ArrayBlockingQueue<>(CALLS);
    Runnable pause = () -> LockSupport.parkNanos(PAUSE_NANOS);
    Runnable none = () -> {};
    Variant clock = new Variant("nothing (the clock alone)", none, i -> {}, pause);
    Variant base = new Variant("capture + ArrayBlockingQueue.offer", bare::clear, i -> bare.offer(capture.apply(i)), pause);
    Variant live = new Variant("listener, sidecar runs", none, toRunning, pause);
    Variant stuck = new Variant("listener, one reporter of two hangs", none, toHung, pause);
    Variant full = new Variant("listener, sidecar stopped, queue full", none, toStopped, pause);
    Variant baseFlood = new Variant("flood: capture + offer", bare::clear, i -> bare.offer(capture.apply(i)), none);
    Variant liveFlood = new Variant("flood: listener, sidecar runs", none, toRunning, none);
    Variant stuckFlood = new Variant("flood: listener, one reporter hangs", none, toHung, none);
    Variant fullFlood = new Variant("flood: listener, sidecar stopped", none, toStopped, none);
    List<Variant> variants =
        Arrays.asList(clock, base, live, stuck, full, baseFlood, liveFlood, stuckFlood, fullFlood);
    for (int round = 0; round < WARM_UP + ROUNDS; round++) {
      for (Variant variant : variants) {
        variant.round(round >= WARM_UP);
      }
    }
    long tick = clock.quantile(0.5);
    for (Variant variant : variants) {
      boolean isFlood = variant.name.startsWith("flood");
      double ratio = (double) (variant.quantile(0.5) - tick) / ((isFlood ? baseFlood : base).quantile(0.5) - tick);
      System.out.printf(
          "  %-42s p50 %6d ns  p99 %7d ns  p99.9 %8d ns  ratio of medians %.2f%n",
          variant.name, variant.quantile(0.5), variant.quantile(0.99), variant.quantile(0.999), ratio);
    }
  }

  private static void signal(String name, ProcessHandle process) throws IOException, InterruptedException {
    new ProcessBuilder("kill", "-" + name, String.valueOf(process.pid())).start().waitFor();
  }

  /** What becomes of the tasks of a stage: each fails once, is tried again with a copy beside it, and succeeds. */
  private static final String[] PHASES = {
    "start", "failing end", "start again", "start of a copy", "end", "end of a copy"
  };

  /** All events of one kind of a stage, timed as a whole. Large stages are slower: their events are out of the caches. */
  private void tasks(int tasks, int rounds) throws Exception {
    EventsListener listener = new EventsListener(conf.clone());
    double[][] nanos = new double[PHASES.length][rounds];
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
        tell(listener, ends[2])
      };
      listener.onStageCompleted(new SparkListenerStageCompleted(info));
      for (int phase = 0; round >= 0 && phase < PHASES.length; phase++) {
        nanos[phase][round] = (double) took[phase] / tasks;
      }
    }
    for (int phase = 0; phase < PHASES.length; phase++) {
      print(PHASES[phase], tasks, nanos[phase]);
    }
    ProcessHandle.current().children().forEach(ProcessHandle::destroyForcibly);
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

  private static SparkListenerTaskEnd[] ends(
      int stage, SparkListenerTaskStart[] started, TaskEndReason reason, scala.Enumeration.Value state) {
    SparkListenerTaskEnd[] ended = new SparkListenerTaskEnd[started.length];
    for (int i = 0; i < ended.length; i++) {
      TaskInfo task = started[i].taskInfo();
      task.markFinished(state, 2L);
      ended[i] = new SparkListenerTaskEnd(stage, 0, "ResultTask", reason, task, null, null);
    }
    return ended;
  }

  private static long tell(EventsListener listener, SparkListenerTaskStart[] events) {
    long start = System.nanoTime();
    for (SparkListenerTaskStart event : events) {
      listener.onTaskStart(event);
    }
    return System.nanoTime() - start;
  }

  private static long tell(EventsListener listener, SparkListenerTaskEnd[] events) {
    long start = System.nanoTime();
    for (SparkListenerTaskEnd event : events) {
      listener.onTaskEnd(event);
    }
    return System.nanoTime() - start;
  }

  private static void print(String what, int tasks, double[] nanos) {
    Arrays.sort(nanos);
    System.out.printf(
        "task %-15s (stages of %6d): median %.1f ns, p99 %.1f ns%n",
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
    // The sidecars have been ended; there is nothing to wait for.
    Runtime.getRuntime().halt(0);
  }
}
