package io.sparkevents;

import io.sparkevents.sidecar.Connection;
import io.sparkevents.sidecar.Connections;
import java.io.BufferedOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
import java.lang.management.ManagementFactory;
import java.util.Arrays;
import java.util.concurrent.locks.LockSupport;
import org.apache.spark.SparkConf;

/**
 * Events per second from the listener's callback to a line in the file, with the real queue, pipe, sidecar and
 * file reporter.
 *
 * <p>The benchmark makes callbacks as fast as the queue allows and waits while the queue is nearly full of
 * unacknowledged records. (A driver would drop records instead; this benchmark measures throughput without
 * drops.) A round ends when the sidecar, after writing the file, acknowledges the last record. Rounds
 * alternate with baselines: the lines of the same records, built in advance, through a pipe to {@code cat},
 * and to a Python that only decodes, encodes and writes each line. Arguments: the Python of the sidecar,
 * the file of the events, a folder for the copies, the number of rounds.
 */
public final class EndToEndBenchmark {
  private static final int WARM_UP = 3;
  private static final int CALLS = 100_000;
  /** Fewer records than seven eighths of the queue's capacity; beyond that, the queue evicts records. */
  private static final int QUEUE = 1_700;
  private static final long NAP_NANOS = 50_000;
  private static final long PATIENCE_MILLIS = 120_000;

  private final Connection connection;
  private final EventsListener listener;
  private final ProcessHandle sidecar;
  private final Bare cat;
  private final Bare python;
  private final byte[][] lines;
  private int calls;

  /** Baseline process that copies the same lines. */
  private static final class Bare {
    final Process process;
    final OutputStream input;
    final File copy;
    final double[] perSecond;
    private long bytes;

    Bare(File copy, int rounds, String... command) throws IOException {
      this.copy = copy;
      perSecond = new double[rounds];
      process = new ProcessBuilder(command).redirectOutput(copy).start();
      input = new BufferedOutputStream(process.getOutputStream(), 64 * 1024);
    }

    double through(byte[][] lines) throws IOException {
      long start = System.nanoTime();
      for (byte[] line : lines) {
        input.write(line);
        bytes += line.length;
      }
      input.flush();
      while (copy.length() < bytes) {
        LockSupport.parkNanos(NAP_NANOS);
      }
      return lines.length * 1e9 / (System.nanoTime() - start);
    }

    long nanos() {
      return process.toHandle().info().totalCpuDuration().get().toNanos();
    }

    void end() throws Exception {
      input.close();
      process.waitFor();
    }
  }

  private EndToEndBenchmark(String interpreter, String events, File folder, int rounds) throws Exception {
    SparkConf conf = Jobs.conf(interpreter, events, "async-queued");
    connection = Connections.open(conf);
    listener = new EventsListener(conf, connection);
    sidecar = ProcessHandle.current().children().findFirst().get();
    listener.onApplicationStart(Jobs.applicationStart());
    lines = Jobs.lines(conf, CALLS);
    cat = new Bare(new File(folder, "cat"), rounds, "cat");
    python = new Bare(new File(folder, "python"), rounds, interpreter, "-m", "benchmarks._bare", folder + "/python");
  }

  private double throughSidecar() throws Exception {
    long start = System.nanoTime();
    for (int i = 0; i < CALLS; i++) {
      while (connection.queue.size() >= QUEUE) {
        LockSupport.parkNanos(NAP_NANOS);
      }
      Jobs.tell(listener, calls++);
    }
    // Record numbers start at 1; record 1 is the application start.
    if (!connection.barrier.awaitAnswered(calls + 1, PATIENCE_MILLIS) || connection.queue.drops.total() > 0) {
      throw new IllegalStateException("records were dropped or not acknowledged in time");
    }
    return CALLS * 1e9 / (System.nanoTime() - start);
  }

  private void run(int rounds) throws Exception {
    double[] ours = new double[rounds];
    double[] ratios = new double[rounds];
    long here = 0;
    long there = 0;
    long bare = 0;
    for (int round = -WARM_UP; round < rounds; round++) {
      long hereBefore = nanosHere();
      long thereBefore = nanosThere();
      double perSecond = throughSidecar();
      if (round < 0) {
        cat.through(lines);
        python.through(lines);
        continue;
      }
      here += nanosHere() - hereBefore;
      there += nanosThere() - thereBefore;
      ours[round] = perSecond;
      cat.perSecond[round] = cat.through(lines);
      long bareBefore = python.nanos();
      python.perSecond[round] = python.through(lines);
      bare += python.nanos() - bareBefore;
      ratios[round] = python.perSecond[round] / perSecond;
    }
    listener.onApplicationEnd(new org.apache.spark.scheduler.SparkListenerApplicationEnd(0L, scala.Option.empty()));
    cat.end();
    python.end();
    Arrays.sort(ours);
    System.out.printf(
        "listener to file: median %,.0f events/s (%,.0f to %,.0f in %d rounds of %,d)%n",
        ours[rounds / 2], ours[0], ours[rounds - 1], rounds, CALLS);
    System.out.printf(
        "the same lines to cat: median %,.0f per second; to a Python that decodes, encodes and writes: %,.0f,"
            + " median ratio of the rounds %.1f%n",
        median(cat.perSecond), median(python.perSecond), median(ratios));
    double events = (double) rounds * CALLS * 1_000;
    System.out.printf(
        "processor time per event: %.1f µs in the JVM (including the creation of Spark's events), %.1f µs in the sidecar,"
            + " %.1f µs in the bare Python%n",
        here / events, there / events, bare / events);
  }

  private static double median(double[] values) {
    double[] sorted = values.clone();
    Arrays.sort(sorted);
    return sorted[sorted.length / 2];
  }

  private static long nanosHere() {
    return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
        .getProcessCpuTime();
  }

  private long nanosThere() {
    return sidecar.info().totalCpuDuration().get().toNanos();
  }

  public static void main(String[] arguments) throws Exception {
    int rounds = Integer.parseInt(arguments[3]);
    new EndToEndBenchmark(arguments[0], arguments[1], new File(arguments[2]), rounds).run(rounds);
    System.out.flush();
  }
}
