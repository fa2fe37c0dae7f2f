package io.sparkevents.metrics;

import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.function.BiConsumer;

/**
 * The numbers of the reporters, as the sidecar tells them several times a second. Read by metrics, on any
 * thread; what is not known is 0, what is told and not known here is skipped.
 */
public final class Statistics {
  /** One reporter's numbers. Its counters go on where they were when the sidecar is started anew. */
  public static final class Reporter {
    private volatile Map<?, ?> now = java.util.Collections.emptyMap();
    private final Map<String, Long> before = new HashMap<>();

    /** A number of this moment. */
    public double level(String key) {
      Object value = now.get(key);
      return value instanceof Number ? ((Number) value).doubleValue() : 0;
    }

    /** A number that only grows. */
    public synchronized long count(String key) {
      return before.getOrDefault(key, 0L) + (long) level(key);
    }

    /** 0 closed, 1 half-open, 2 open: the higher, the worse. */
    public int breakerState() {
      switch (String.valueOf(now.get(BREAKER)).replace('_', '-')) {
        case "open":
          return 2;
        case "half-open":
          return 1;
        default:
          return 0;
      }
    }

    private synchronized void sidecarStarted() {
      for (Object told : now.keySet()) {
        String key = String.valueOf(told);
        if (COUNTERS.contains(key) || key.startsWith(DROPPED_FOR)) {
          before.put(key, count(key));
        }
      }
      // Where it died before it told a number, what it had been told still holds.
      if (!now.isEmpty()) {
        before.put(BREAKER, (long) breakerState());
      }
      now = java.util.Collections.emptyMap();
    }

    private synchronized Map<String, Long> before() {
      return new HashMap<>(before);
    }
  }

  private static final String BREAKER = "breaker";
  private static final Set<String> COUNTERS =
      new HashSet<>(Arrays.asList("accepted", "delivered", "dropped", "failures", "timeouts"));
  /** And a reason. */
  private static final String DROPPED_FOR = "dropped.";

  private final Map<String, Reporter> reporters = new HashMap<>();
  private BiConsumer<String, Reporter> observer = (name, reporter) -> {};

  /** A new sidecar counts from 0. */
  public synchronized void sidecarStarted() {
    for (Reporter reporter : reporters.values()) {
      reporter.sidecarStarted();
    }
  }

  /** What those that are gone had counted, and how the last of their circuit breakers stood, by reporter. */
  public synchronized Map<String, Map<String, Long>> before() {
    Map<String, Map<String, Long>> all = new HashMap<>();
    reporters.forEach((name, reporter) -> all.put(name, reporter.before()));
    return all;
  }

  public synchronized void receive(Map<?, ?> answer) {
    Object all = answer.get("reporters");
    if (!(all instanceof Map)) {
      return;
    }
    for (Map.Entry<?, ?> told : ((Map<?, ?>) all).entrySet()) {
      if (told.getValue() instanceof Map) {
        reporter(String.valueOf(told.getKey())).now = (Map<?, ?>) told.getValue();
      }
    }
  }

  private Reporter reporter(String name) {
    Reporter known = reporters.get(name);
    if (known == null) {
      known = new Reporter();
      reporters.put(name, known);
      observer.accept(name, known);
    }
    return known;
  }

  /** Tells {@code observer} of each reporter: of those that are known at once, of others when they are. */
  public synchronized void observe(BiConsumer<String, Reporter> observer) {
    this.observer = observer;
    reporters.forEach(observer);
  }

  /** Events that reporters had to drop, all together. */
  public synchronized long dropped() {
    long sum = 0;
    for (Reporter reporter : reporters.values()) {
      sum += reporter.count("dropped");
    }
    return sum;
  }
}
