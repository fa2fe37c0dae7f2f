package io.sparkevents.metrics;

import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.function.BiConsumer;

/**
 * Counters and gauges of the reporters, which the sidecar sends several times a second.
 *
 * <p>Metrics may read the values on any thread. An unknown value is 0. A value that the shim does not know is skipped.
 */
public final class Statistics {
  /** Counters and gauges of one reporter. The counters continue when the sidecar restarts. */
  public static final class Reporter {
    private volatile Map<?, ?> now = Collections.emptyMap();
    private final Map<String, Long> before = new HashMap<>();

    /** Returns a gauge: the current value. */
    public double level(String key) {
      Object value = now.get(key);
      return value instanceof Number ? ((Number) value).doubleValue() : 0;
    }

    /** Returns a counter, including the counts of earlier sidecars. */
    public synchronized long count(String key) {
      return before.getOrDefault(key, 0L) + (long) level(key);
    }

    /** Returns the circuit breaker's state: 0 closed, 1 half-open, 2 open. */
    public int breakerState() {
      String state = String.valueOf(now.get(BREAKER));
      return state.equals("open") ? 2 : state.startsWith("half") ? 1 : 0;
    }

    private synchronized void sidecarStarted() {
      now.keySet().stream()
          .map(String::valueOf)
          .filter(key -> COUNTERS.contains(key) || key.startsWith(DROPPED_FOR))
          .forEach(key -> before.put(key, count(key)));
      // If a sidecar died before it sent counters, keep the breaker state that the sidecar received on startup.
      if (!now.isEmpty()) {
        before.put(BREAKER, (long) breakerState());
      }
      now = Collections.emptyMap();
    }

    private synchronized Map<String, Long> before() {
      return new HashMap<>(before);
    }
  }

  private static final String BREAKER = "breaker";
  private static final Set<String> COUNTERS =
      new HashSet<>(Arrays.asList("accepted", "delivered", "dropped", "failures", "timeouts"));
  /** Prefix of the counters of dropped events by reason. */
  private static final String DROPPED_FOR = "dropped.";

  private final Map<String, Reporter> reporters = new HashMap<>();
  private BiConsumer<String, Reporter> observer = (name, reporter) -> {};

  /** Adds the current counters to the totals, because a new sidecar counts from 0. */
  public synchronized void sidecarStarted() {
    reporters.values().forEach(Reporter::sidecarStarted);
  }

  /** Returns the counters of earlier sidecars and the last state of the circuit breaker, by reporter. */
  public synchronized Map<String, Map<String, Long>> before() {
    Map<String, Map<String, Long>> all = new HashMap<>();
    reporters.forEach((name, reporter) -> all.put(name, reporter.before()));
    return all;
  }

  public synchronized void receive(Map<?, ?> answer) {
    // A message in another format causes an exception here; the caller handles it and skips the message.
    ((Map<?, ?>) answer.get("reporters"))
        .forEach((name, reported) -> reporter(String.valueOf(name)).now = (Map<?, ?>) reported);
  }

  private Reporter reporter(String name) {
    if (!reporters.containsKey(name)) {
      reporters.put(name, new Reporter());
      observer.accept(name, reporters.get(name));
    }
    return reporters.get(name);
  }

  /** Calls {@code observer} for each known reporter now, and for each new reporter later. */
  public synchronized void observe(BiConsumer<String, Reporter> observer) {
    this.observer = observer;
    reporters.forEach(observer);
  }

  /** Returns the number of events that all reporters dropped. */
  public synchronized long dropped() {
    return reporters.values().stream().mapToLong(reporter -> reporter.count("dropped")).sum();
  }
}
