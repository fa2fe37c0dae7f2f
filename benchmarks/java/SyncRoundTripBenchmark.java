package io.sparkevents;

import io.sparkevents.sidecar.Connection;
import io.sparkevents.sidecar.Connections;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.util.Arrays;
import java.util.concurrent.locks.LockSupport;
import org.apache.spark.SparkConf;

/**
 * Time of a callback with {@code events.dispatcher.type=sync}: until the file reporter has written the event
 * and the driver has received the acknowledgement.
 *
 * <p>The baseline is the minimum for a second process: the calling thread writes the line of the same record
 * to {@code cat} and reads it back. Calls alternate with such echoes, first without pauses, then with
 * pauses, after which every thread and processor has to wake up. Arguments: the Python of the sidecar, the
 * file of the events, the number of calls.
 */
public final class SyncRoundTripBenchmark {
  private static final int WARM_UP = 5_000;
  private static final long PAUSE_NANOS = 2_000_000;

  private final EventsListener listener;
  private final Connection connection;
  private final OutputStream toCat;
  private final InputStream fromCat;
  private final byte[][] lines;
  private final byte[] echo = new byte[8192];
  private int calls;

  private SyncRoundTripBenchmark(String python, String events) throws Exception {
    SparkConf conf = Jobs.conf(python, events, "sync");
    connection = Connections.open(conf);
    listener = new EventsListener(conf, connection);
    listener.onApplicationStart(Jobs.applicationStart());
    lines = Jobs.lines(conf, 2);
    Process cat = new ProcessBuilder("cat").start();
    toCat = cat.getOutputStream();
    fromCat = cat.getInputStream();
  }

  private long callback() {
    long start = System.nanoTime();
    Jobs.tell(listener, calls++);
    return System.nanoTime() - start;
  }

  private long echo() throws IOException {
    byte[] line = lines[calls % 2];
    long start = System.nanoTime();
    toCat.write(line);
    toCat.flush();
    for (int left = line.length; left > 0; ) {
      left -= fromCat.read(echo, 0, left);
    }
    return System.nanoTime() - start;
  }

  private void compare(String name, int count, long pause) throws IOException {
    long[] ours = new long[count];
    long[] bare = new long[count];
    for (int i = 0; i < count; i++) {
      rest(pause);
      ours[i] = callback();
      rest(pause);
      bare[i] = echo();
    }
    if (!connection.barrier.isAnswered(calls + 1)) {
      throw new IllegalStateException("a callback returned before the sidecar acknowledged its record");
    }
    Arrays.sort(ours);
    Arrays.sort(bare);
    System.out.printf(
        "%-22s callback p50 %4d µs, p99 %5d µs; echo of cat p50 %4d µs, p99 %5d µs; ratio of medians %.1f%n",
        name,
        micros(ours, 0.5),
        micros(ours, 0.99),
        micros(bare, 0.5),
        micros(bare, 0.99),
        (double) ours[count / 2] / bare[count / 2]);
  }

  private static void rest(long nanos) {
    if (nanos > 0) {
      LockSupport.parkNanos(nanos);
    }
  }

  private static long micros(long[] sorted, double share) {
    return Math.round(sorted[(int) (share * (sorted.length - 1))] / 1_000.0);
  }

  public static void main(String[] arguments) throws Exception {
    SyncRoundTripBenchmark benchmark = new SyncRoundTripBenchmark(arguments[0], arguments[1]);
    int count = Integer.parseInt(arguments[2]);
    for (int i = 0; i < WARM_UP; i++) {
      benchmark.callback();
      benchmark.echo();
    }
    benchmark.compare("one after the other:", count, 0);
    benchmark.compare("every few ms:", count / 4, PAUSE_NANOS);
    benchmark.listener.onApplicationEnd(
        new org.apache.spark.scheduler.SparkListenerApplicationEnd(0L, scala.Option.empty()));
    System.out.flush();
    Runtime.getRuntime().halt(0);
  }
}
