package io.sparkevents.metrics;

import com.codahale.metrics.Gauge;
import com.codahale.metrics.MetricRegistry;
import io.sparkevents.queue.HandoffQueue;
import java.util.function.IntSupplier;

/**
 * Metrics for operators in Spark's own metrics system, with names as in FLIP-545.
 *
 * <p>A reporter's metrics are registered when the sidecar first reports that reporter, after Spark has taken over the
 * registry. Dropwizard passes later registrations on to the parent registry.
 */
public final class Metrics {
  private static final String QUEUE = "events.dispatcher.queue.";

  private Metrics() {}

  public static void register(MetricRegistry registry, HandoffQueue queue, IntSupplier restartCount, Statistics statistics) {
    Gauge<Long> dropped = () -> queue.dropped() + statistics.dropped();
    // A fraction, as Flink's buffer usage metrics are, so that an alert does not depend on the queue's size.
    Gauge<Double> usage = () -> (double) queue.size() / queue.capacity();
    Gauge<Integer> size = queue::capacity;
    Gauge<Integer> restarts = restartCount::getAsInt;
    registry.register("events.droppedCount", dropped);
    registry.register(QUEUE + "currentUsage", usage);
    registry.register(QUEUE + "size", size);
    registry.register("events.sidecar.restarts", restarts);
    statistics.observe((name, reporter) -> register(registry, name, reporter));
  }

  private static void register(MetricRegistry registry, String name, Statistics.Reporter reporter) {
    String prefix = "events.reporter." + name + ".";
    Gauge<Double> latency = () -> reporter.level("latency_ms");
    Gauge<Integer> breaker = reporter::breakerState;
    registry.register(prefix + "latency", latency);
    registry.register(prefix + "breakerState", breaker);
    count(registry, prefix + "failureCount", reporter, "failures");
    count(registry, prefix + "droppedCount", reporter, "dropped");
    count(registry, prefix + "deliveredCount", reporter, "delivered");
    level(registry, prefix + "spoolDepth", reporter, "spooled");
    level(registry, prefix + "oldestUndeliveredAge", reporter, "oldest_age_ms");
  }

  private static void count(MetricRegistry registry, String name, Statistics.Reporter reporter, String key) {
    Gauge<Long> gauge = () -> reporter.count(key);
    registry.register(name, gauge);
  }

  private static void level(MetricRegistry registry, String name, Statistics.Reporter reporter, String key) {
    Gauge<Long> gauge = () -> (long) reporter.level(key);
    registry.register(name, gauge);
  }
}
