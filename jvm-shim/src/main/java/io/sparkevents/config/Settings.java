package io.sparkevents.config;

import java.util.Collections;
import java.util.Map;
import org.apache.spark.SparkConf;

/**
 * The few settings that the shim itself needs.
 *
 * <p>The sidecar receives all values as the user wrote them, and validates every key. The shim ignores invalid values,
 * because the sidecar reports them. Each reference is resolved only once, because a second look-up might block or return
 * another value.
 */
public final class Settings {
  private static final String TYPE = "events.dispatcher.type";

  /** All settings, as the user wrote them. */
  public final GivenSettings given;
  public final boolean required;
  public final boolean sidecarEnabled;
  /** Python interpreter for the sidecar; empty if the user sets none. */
  public final String python;
  /**
   * Whether the listener thread may have to wait for the answers of all reporters or of guaranteed reporters. Also true
   * if the shim cannot decide; when the sidecar is ready, it decides.
   */
  public final boolean waitsForAny;
  public final int queueSize;
  public final int mostRestarts;
  public final long restartsWindowMillis;
  public final long syncTimeoutMillis;
  public final long shutdownTimeoutMillis;
  public final long outcomeTimeoutMillis;
  public final long startTimeoutMillis;
  public final long stallTimeoutMillis;
  /** Minimum time between two records of a running application's totals; 0 for only the final record. */
  public final long summaryIntervalMillis;
  /** Whether successful jobs and stages of micro-batches cause events. Also true if the shim cannot decide. */
  public final boolean reportsMicroBatches;

  /**
   * Reads the settings.
   *
   * @param overrides values that replace the values in the application's configuration
   */
  public Settings(SparkConf conf, Map<String, String> environment, Map<String, String> overrides) {
    given = new GivenSettings(conf, environment, overrides);
    required = "true".equalsIgnoreCase(given.text("events.required", ""));
    sidecarEnabled = !"false".equalsIgnoreCase(given.text("events.sidecar.enabled", ""));
    python = given.text("events.python", "");
    boolean isSynchronous = given.contains(TYPE) && !"async-queued".equals(given.text(TYPE, ""));
    waitsForAny = isSynchronous || guaranteesAny();
    queueSize = Math.max(1, given.number("events.dispatcher.queue.size", 2048));
    mostRestarts = Math.max(0, given.number("events.sidecar.restarts.max", 10));
    restartsWindowMillis = given.millis("events.sidecar.restarts.window", 600_000);
    syncTimeoutMillis = given.millis("events.dispatcher.sync.timeout", 10_000);
    shutdownTimeoutMillis = given.millis("events.shutdown.timeout", 10_000);
    outcomeTimeoutMillis = given.millis("events.shutdown.outcome-timeout", 30_000);
    startTimeoutMillis = given.millis("events.sidecar.start-timeout", 30_000);
    stallTimeoutMillis = given.millis("events.sidecar.stall-timeout", 60_000);
    summaryIntervalMillis = given.millis("events.summary.interval", 0);
    reportsMicroBatches = given.isOn("events.streaming-jobs.enabled") || given.isOn("events.streaming-stages.enabled");
  }

  public static Settings read(SparkConf conf, Map<String, String> environment) {
    return new Settings(conf, environment, Collections.emptyMap());
  }

  /**
   * Whether a reporter has guaranteed delivery. Also true if the shim cannot decide; when the sidecar is ready, it
   * decides.
   */
  private boolean guaranteesAny() {
    return given.keys().stream()
        .filter(key -> key.matches("events\\.reporter\\..*\\.delivery\\.guarantee"))
        .anyMatch(key -> "guaranteed".equals(given.text(key, "guaranteed")));
  }
}
