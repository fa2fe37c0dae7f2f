package io.sparkevents.sidecar;

import io.sparkevents.queue.DropCounters;
import io.sparkevents.queue.HandoffQueue;
import java.lang.management.ManagementFactory;
import java.util.concurrent.TimeUnit;
import javax.management.JMException;
import javax.management.MBeanServer;
import javax.management.ObjectName;

/**
 * Counts the events that Spark's listener bus dropped before any listener received them.
 *
 * <p>Spark has no public method for this number, so the number is known only if a JmxSink publishes Spark's metrics.
 * Not thread-safe.
 */
final class ListenerBusDrops {
  private static final String BEANS = "metrics:name=*.LiveListenerBus.queue.shared.numDroppedEvents,*";
  private static final long INTERVAL_NANOS = TimeUnit.SECONDS.toNanos(5);

  private long known;
  private long lookedNanos = System.nanoTime();

  /**
   * Reads Spark's counter, and counts new drops in {@code queue}.
   *
   * <p>The counter is read at most every five seconds, but always if {@code last} is true.
   */
  void look(HandoffQueue queue, boolean last) {
    if (!last && System.nanoTime() - lookedNanos < INTERVAL_NANOS) {
      return;
    }
    lookedNanos = System.nanoTime();
    try {
      MBeanServer server = ManagementFactory.getPlatformMBeanServer();
      for (ObjectName bean : server.queryNames(new ObjectName(BEANS), null)) {
        long dropped = ((Number) server.getAttribute(bean, "Count")).longValue();
        if (dropped > known) {
          queue.countDropped(DropCounters.LISTENER_QUEUE, "event", dropped - known);
          known = dropped;
        }
      }
    } catch (JMException | RuntimeException unknown) {
      // Ignore the error: the next read may succeed, and Spark's counter still includes the drops.
    }
  }
}
