package io.sparkevents.wire;

import com.codahale.metrics.Counter;
import io.sparkevents.listener.BusEvent;
import io.sparkevents.queue.DropCounters;
import io.sparkevents.queue.RecordQueue;
import java.util.concurrent.TimeUnit;
import org.apache.spark.SparkContext;

/**
 * Counts the events that Spark's listener bus dropped before any listener received them.
 *
 * <p>The number is in the bus's metrics. Spark's Scala code declares the bus as private to Spark, but the bytecode is
 * public, and the same on all supported versions. Without this number, work whose end was dropped would be reported as
 * running when the application ends. Thread-safe.
 */
final class ListenerBusDrops {
  private static final String COUNTER = "queue.shared.numDroppedEvents";
  private static final long INTERVAL_NANOS = TimeUnit.SECONDS.toNanos(5);

  /** Spark's counter, kept because Spark forgets a stopped context; null if it was not found. */
  private Counter counter;
  private boolean sought;
  private long known;
  /** Time of the next {@link #look}. */
  volatile long dueNanos = System.nanoTime();

  /** Ignores the events that were dropped earlier, before an in-process stream was opened. */
  ListenerBusDrops() {
    find();
    known = dropped();
  }

  /**
   * Reads Spark's counter, and counts new drops in {@code queue}.
   *
   * <p>The next look is due after five seconds; until the context is complete, it is due immediately, because the
   * application may end at any time.
   */
  synchronized void look(RecordQueue queue) {
    find();
    dueNanos = System.nanoTime() + (sought ? INTERVAL_NANOS : 0);
    long dropped = dropped();
    if (dropped > known) {
      queue.drops.count(DropCounters.LISTENER_QUEUE, "event", dropped - known);
      known = dropped;
    }
  }

  private void find() {
    // A context that is stopping counts too, because the last look follows the beginning of the stop.
    SparkContext active = sought ? null : BusEvent.activeContext();
    if (active == null) {
      return;
    }
    sought = true;
    try {
      counter = active.listenerBus().metrics().metricRegistry().getCounters().get(COUNTER);
    } catch (RuntimeException | LinkageError unknown) {
      // Another build of Spark may lack the counter. Then Spark's own warning is the only sign of the drops.
    }
  }

  private long dropped() {
    return counter == null ? known : counter.getCount();
  }
}
