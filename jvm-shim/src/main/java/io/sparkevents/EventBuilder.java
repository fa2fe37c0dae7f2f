package io.sparkevents;

import io.sparkevents.queue.Record;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;

/**
 * Builds an event that the user's program adds, as in Flink's FLIP-481. Each setter rejects an invalid value.
 *
 * <pre>{@code
 * Events.builder("shop.orders", "OrdersImported").attribute("orders", 12).severity("WARN").add();
 * }</pre>
 */
public final class EventBuilder {
  private static final List<String> SEVERITIES = Arrays.asList("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL");

  private final String classScope;
  private final String name;
  private final Map<String, Object> attributes = new LinkedHashMap<>();
  private String body;
  private String severity = "INFO";
  private long observedMillis = -1;

  EventBuilder(String classScope, String name) {
    this.classScope = text("classScope", classScope);
    this.name = text("name", name);
  }

  /** Sets the sentence that describes the event; default: the event's name. */
  public EventBuilder body(String sentence) {
    body = text("body", sentence);
    return this;
  }

  /** Sets the severity; default: INFO. */
  public EventBuilder severity(String level) {
    if (!SEVERITIES.contains(level)) {
      throw new IllegalArgumentException("severity: given " + level + ", expected one of " + SEVERITIES);
    }
    severity = level;
    return this;
  }

  /** Sets the time of the event in milliseconds since the epoch; default: now. */
  public EventBuilder observedAt(long millis) {
    if (millis < 0) {
      throw new IllegalArgumentException("observedAt: given " + millis + ", expected milliseconds since the epoch");
    }
    observedMillis = millis;
    return this;
  }

  /** Adds an attribute: a String, a Boolean, a whole number of up to 64 bits, or a finite Double or Float. */
  public EventBuilder attribute(String key, Object value) {
    attributes.put(text("attribute key", key), checked(key, value));
    return this;
  }

  /**
   * Posts the event to Spark's listener bus, in order with Spark's own events, and returns immediately.
   *
   * @return whether this JVM is the driver of a running application, as for {@link Events#add(String)}
   */
  public boolean add() {
    long at = observedMillis < 0 ? System.currentTimeMillis() : observedMillis;
    try {
      byte[] line = Record.json(json -> {
        String id = UUID.randomUUID().toString().replace("-", "");
        String sentence = body == null ? name : body;
        Record.write(json, "id", id, "name", name, "class_scope", classScope, "body", sentence);
        Record.write(json, "severity", severity, "time", at, "attributes", attributes);
      });
      return Events.add(new String(line, StandardCharsets.UTF_8));
    } catch (IOException impossible) {
      throw new UncheckedIOException(impossible);
    }
  }

  private static String text(String what, String value) {
    if (value == null || value.trim().isEmpty()) {
      throw new IllegalArgumentException(what + ": given " + value + ", expected a text that is not empty");
    }
    return value;
  }

  private static Object checked(String key, Object value) {
    boolean whole =
        value instanceof Long || value instanceof Integer || value instanceof Short || value instanceof Byte;
    boolean fraction = value instanceof Double || value instanceof Float;
    boolean finite = fraction && Double.isFinite(((Number) value).doubleValue());
    if (whole || finite || value instanceof String || value instanceof Boolean) {
      return value;
    }
    throw new IllegalArgumentException(
        "attribute " + key + ": given " + value + ", expected a String, a Boolean, a whole number of 64 bits or a"
            + " finite Double");
  }
}
