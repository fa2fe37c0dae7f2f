package io.sparkevents;

import io.sparkevents.metrics.Metrics;
import io.sparkevents.sidecar.Connection;
import io.sparkevents.sidecar.Connections;
import java.util.Collections;
import java.util.Map;
import org.apache.spark.SparkContext;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.api.plugin.SparkPlugin;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Adds the listener, and adds its metrics to Spark's metrics system: {@code spark.plugins=io.sparkevents.EventsPlugin}.
 *
 * <p>With this plugin, {@code spark.extraListeners} is not needed. If both are set, every event is still reported once.
 * Spark also loads this class on executors, where it does nothing.
 */
public final class EventsPlugin implements SparkPlugin {
  private static final Logger LOG = LoggerFactory.getLogger(EventsPlugin.class);

  @Override
  public DriverPlugin driverPlugin() {
    return new Driver();
  }

  @Override
  public ExecutorPlugin executorPlugin() {
    return null;
  }

  private static final class Driver implements DriverPlugin {
    private Connection connection;
    private boolean started;

    /** Called before Spark starts the listener bus, so that the listener misses no event, not even ApplicationStart. */
    @Override
    public Map<String, String> init(SparkContext context, PluginContext plugin) {
      connection = Connections.open(plugin.conf());
      if (connection != null) {
        try {
          context.addSparkListener(new EventsListener(plugin.conf(), connection));
          Metrics.register(plugin.metricRegistry(), connection.queue, connection.sidecar::restarts, connection.statistics);
        } catch (Throwable defect) {
          LOG.error("[spark-events] cannot add the listener or its metrics; the job continues; report this", defect);
        }
      }
      return Collections.emptyMap();
    }

    /** Called after the application has started. */
    @Override
    public void registerMetrics(String applicationId, PluginContext plugin) {
      started = true;
    }

    @Override
    public void shutdown() {
      if (connection != null && !started) {
        // Creating the SparkContext failed, so its listener bus never reports that the application has ended.
        connection.close();
      }
    }
  }
}
