package io.sparkevents.sidecar;

import io.sparkevents.queue.DropCounters;
import io.sparkevents.queue.HandoffQueue;
import java.lang.management.ManagementFactory;
import java.util.concurrent.TimeUnit;
import javax.management.JMException;
import javax.management.MBeanServer;
import javax.management.ObjectName;

/**
 * Counts the events that Spark's listener bus dropped before its listeners received them.
 *
 * <p>Spark has no public call for that number, so it is known only if a JmxSink publishes Spark's metrics. Not
 * thread-safe.
 */
final class ListenerBusDrops {
  private static final String BEANS = "metrics:name=*.LiveListenerBus.queue.shared.numDroppedEvents,*";
  private static final long INTERVAL_NANOS = TimeUnit.SECONDS.toNanos(5);

  private long known;
  private long lookedNanos = System.nanoTime();

  /**
   * Reads the counter at most every five seconds, and always if {@code last}, and counts new drops in {@code queue}.
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
      // The next look may succeed; a drop stays counted in the bean.
    }
  }
}
