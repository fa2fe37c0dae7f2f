package io.sparkevents;

import io.sparkevents.metrics.Metrics;
import io.sparkevents.sidecar.Connection;
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
 * The listener, and its metrics in Spark's metrics system: {@code spark.plugins=io.sparkevents.EventsPlugin}.
 *
 * <p>It does not need {@code spark.extraListeners}; with both, everything is still told once. Spark loads
 * this class on executors, too, where it does nothing.
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

    /** Called before the listener bus starts, so that no event is missed: not even ApplicationStart. */
    @Override
    public Map<String, String> init(SparkContext context, PluginContext plugin) {
      connection = Connection.open(plugin.conf());
      if (connection != null) {
        try {
          context.addSparkListener(new EventsListener(plugin.conf(), connection));
          Metrics.register(plugin.metricRegistry(), connection.queue, connection.sidecar::restarts, connection.statistics);
        } catch (Throwable defect) {
          LOG.error("spark-events: the plugin cannot do its work, the job goes on without", defect);
        }
      }
      return Collections.emptyMap();
    }

    /** Called when the application runs. */
    @Override
    public void registerMetrics(String applicationId, PluginContext plugin) {
      started = true;
    }

    @Override
    public void shutdown() {
      if (connection != null && !started) {
        // A SparkContext that could not be made: its listener bus will never say that it is over.
        connection.close();
      }
    }
  }
}
