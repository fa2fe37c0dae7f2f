package io.sparkevents.queue;

import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Map that removes its oldest entry when it exceeds a limit; without a limit, entries would remain forever if Spark
 * drops their end events.
 */
public final class BoundedMap<K, V> extends LinkedHashMap<K, V> {
  private static final long serialVersionUID = 1;

  private final int limit;

  public BoundedMap(int limit) {
    this.limit = limit;
  }

  @Override
  protected boolean removeEldestEntry(Map.Entry<K, V> eldest) {
    return size() > limit;
  }
}
