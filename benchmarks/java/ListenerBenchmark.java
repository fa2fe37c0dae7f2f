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
import org.apache.spark.TaskState;
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

  private final SparkConf conf = new SparkConf(false);
  private final SparkListenerJobStart jobStart;
  private final SparkListenerJobEnd jobEnd;

  private ListenerBenchmark(String python, String events) {
    conf.set("spark.events.python", python);
    conf.set("spark.events.required", "true");
    conf.set("spark.events.dispatcher.type", "async-queued");
    conf.set("spark.events.shutdown.timeout", "1s");
    conf.set("spark.events.reporter.audit.type", "file");
    conf.set("spark.events.reporter.audit.path", events);
    Properties properties = new Properties();
    properties.setProperty("spark.job.description", "select count(*) from somewhere");
    properties.setProperty("spark.sql.execution.id", "17");
    properties.setProperty("callSite.short", "count at App.scala:12");
    for (int i = 0; i < 20; i++) {
      properties.setProperty("spark.some.other.property." + i, "value " + i);
    }
    jobStart = new SparkListenerJobStart(1, 1L, none(), properties);
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

    System.out.println("a job's start:");
    compare(i -> records.jobStart(jobStart), i -> running.onJobStart(jobStart), i -> stopped.onJobStart(jobStart));
    System.out.println("a job's end:");
    compare(i -> records.jobEnd(jobEnd), i -> running.onJobEnd(jobEnd), i -> stopped.onJobEnd(jobEnd));
    second.destroyForcibly();
    first.destroyForcibly();
  }

  private static void compare(IntFunction<Record> capture, IntConsumer toRunning, IntConsumer toStopped) {
    ArrayBlockingQueue<Record> bare = new ArrayBlockingQueue<>(CALLS);
    Runnable pause = () -> LockSupport.parkNanos(PAUSE_NANOS);
    Runnable none = () -> {};
    Variant clock = new Variant("nothing (the clock alone)", none, i -> {}, pause);
    Variant base = new Variant("capture + ArrayBlockingQueue.offer", bare::clear, i -> bare.offer(capture.apply(i)), pause);
    Variant live = new Variant("listener, sidecar runs", none, toRunning, pause);
    Variant full = new Variant("listener, sidecar stopped, queue full", none, toStopped, pause);
    Variant baseFlood = new Variant("flood: capture + offer", bare::clear, i -> bare.offer(capture.apply(i)), none);
    Variant liveFlood = new Variant("flood: listener, sidecar runs", none, toRunning, none);
    Variant fullFlood = new Variant("flood: listener, sidecar stopped", none, toStopped, none);
    List<Variant> variants = Arrays.asList(clock, base, live, full, baseFlood, liveFlood, fullFlood);
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

  /** All start and end events of a stage, timed as a whole. Large stages are slower: their events are out of the caches. */
  private void tasks(int tasks, int rounds) throws Exception {
    EventsListener listener = new EventsListener(conf.clone());
    double[] starts = new double[rounds];
    double[] ends = new double[rounds];
    int warmUp = rounds;
    for (int round = -warmUp; round < rounds; round++) {
      int stage = round + warmUp;
      SparkListenerTaskStart[] started = new SparkListenerTaskStart[tasks];
      SparkListenerTaskEnd[] ended = new SparkListenerTaskEnd[tasks];
      for (int i = 0; i < tasks; i++) {
        TaskInfo task = new TaskInfo(i, i, 0, i, 1L, "1", "host", TaskLocality.PROCESS_LOCAL(), false);
        task.markFinished(TaskState.FINISHED(), 2L);
        started[i] = new SparkListenerTaskStart(stage, 0, task);
        ended[i] = new SparkListenerTaskEnd(stage, 0, "ResultTask", Success$.MODULE$, task, null, null);
      }
      StageInfo info =
          new StageInfo(stage, 0, "stage", tasks, none(), none(), "", null, none(), Option.empty(), 0, false, 0);
      listener.onStageSubmitted(new SparkListenerStageSubmitted(info, new Properties()));
      long start = System.nanoTime();
      for (SparkListenerTaskStart event : started) {
        listener.onTaskStart(event);
      }
      long middle = System.nanoTime();
      for (SparkListenerTaskEnd event : ended) {
        listener.onTaskEnd(event);
      }
      long end = System.nanoTime();
      listener.onStageCompleted(new SparkListenerStageCompleted(info));
      if (round >= 0) {
        starts[round] = (double) (middle - start) / tasks;
        ends[round] = (double) (end - middle) / tasks;
      }
    }
    print("start", tasks, starts);
    print("end", tasks, ends);
    ProcessHandle.current().children().forEach(ProcessHandle::destroyForcibly);
  }

  private static void print(String what, int tasks, double[] nanos) {
    Arrays.sort(nanos);
    System.out.printf(
        "task %-5s (stages of %6d): median %.1f ns, p99 %.1f ns%n",
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
