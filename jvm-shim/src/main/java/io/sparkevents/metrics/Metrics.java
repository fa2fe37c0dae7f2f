package io.sparkevents.metrics;

import com.codahale.metrics.Gauge;
import com.codahale.metrics.MetricRegistry;
import io.sparkevents.queue.RecordQueue;
import java.util.function.IntSupplier;

/**
 * Metrics for operators in Spark's metrics system, with the names of FLIP-545.
 *
 * <p>The metrics of a reporter are registered when the sidecar first reports this reporter. At that time, Spark's
 * metrics system already contains the registry. Dropwizard also adds later registrations to the parent registry.
 */
public final class Metrics {
  private Metrics() {}

  public static void register(MetricRegistry registry, RecordQueue queue, IntSupplier restarts, Statistics statistics) {
    add(registry, "events.droppedCount", () -> queue.drops.total() + statistics.dropped());
    // Use a fraction, as Flink's buffer usage metrics do, so that an alert does not depend on the queue's size.
    add(registry, "events.dispatcher.queue.currentUsage", queue.usage::usedFraction);
    add(registry, "events.dispatcher.queue.unacknowledged", queue.usage::unacknowledged);
    add(registry, "events.dispatcher.queue.size", () -> queue.capacity);
    add(registry, "events.sidecar.restarts", restarts::getAsInt);
    statistics.observe((name, reporter) -> register(registry, "events.reporter." + name + ".", reporter));
  }

  private static void register(MetricRegistry registry, String prefix, Statistics.Reporter reporter) {
    add(registry, prefix + "latency", () -> reporter.level("latency_ms"));
    add(registry, prefix + "latency.p50", () -> reporter.level("latency_p50_ms"));
    add(registry, prefix + "latency.p99", () -> reporter.level("latency_p99_ms"));
    add(registry, prefix + "queue.currentUsage", () -> reporter.level("queue_usage"));
    add(registry, prefix + "breakerState", reporter::breakerState);
    add(registry, prefix + "failureCount", () -> reporter.count("failures"));
    add(registry, prefix + "droppedCount", () -> reporter.count("dropped"));
    add(registry, prefix + "deliveredCount", () -> reporter.count("delivered"));
    add(registry, prefix + "spool.depth", () -> (long) reporter.level("spooled"));
    add(registry, prefix + "oldest.age", () -> (long) reporter.level("oldest_age_ms"));
  }

  private static <T> void add(MetricRegistry registry, String name, Gauge<T> gauge) {
    registry.register(name, gauge);
  }
}
