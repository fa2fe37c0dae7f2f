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
 * Builds an event of the program's own, as in Flink's FLIP-481; every wrong value is refused at once.
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

  /** A sentence for people; without one it is the event's name. */
  public EventBuilder body(String sentence) {
    body = text("body", sentence);
    return this;
  }

  /** INFO, if it is never called. */
  public EventBuilder severity(String level) {
    if (!SEVERITIES.contains(level)) {
      throw new IllegalArgumentException("severity: given " + level + ", allowed is one of " + SEVERITIES);
    }
    severity = level;
    return this;
  }

  /** When it happened, in milliseconds since the epoch; the present, if it is never called. */
  public EventBuilder observedAt(long millis) {
    if (millis < 0) {
      throw new IllegalArgumentException("observedAt: given " + millis + ", allowed are milliseconds since the epoch");
    }
    observedMillis = millis;
    return this;
  }

  /** Adds a detail: a String, a Boolean, a whole number of 64 bits or less, or a finite Double or Float. */
  public EventBuilder attribute(String key, Object value) {
    attributes.put(text("attribute key", key), checked(key, value));
    return this;
  }

  /**
   * Adds the event to those that Spark tells, in its place among them, and returns at once.
   *
   * @return whether there is a Spark application to take it; whether anybody listens, the bus does not say
   */
  public boolean add() {
    long at = observedMillis < 0 ? System.currentTimeMillis() : observedMillis;
    try {
      byte[] line =
          Record.json(
              json -> {
                json.writeStringField("id", UUID.randomUUID().toString().replace("-", ""));
                json.writeStringField("name", name);
                json.writeStringField("class_scope", classScope);
                json.writeStringField("body", body == null ? name : body);
                json.writeStringField("severity", severity);
                json.writeNumberField("time", at);
                json.writeObjectFieldStart("attributes");
                for (Map.Entry<String, Object> one : attributes.entrySet()) {
                  json.writeObjectField(one.getKey(), one.getValue());
                }
                json.writeEndObject();
              });
      return Events.add(new String(line, StandardCharsets.UTF_8));
    } catch (IOException impossible) {
      throw new UncheckedIOException(impossible);
    }
  }

  private static String text(String what, String value) {
    if (value == null || value.trim().isEmpty()) {
      throw new IllegalArgumentException(what + ": given " + value + ", allowed is text that is not empty");
    }
    return value;
  }

  private static Object checked(String key, Object value) {
    boolean whole =
        value instanceof Long || value instanceof Integer || value instanceof Short || value instanceof Byte;
    boolean fraction = value instanceof Double || value instanceof Float;
    if (value instanceof String || value instanceof Boolean || whole) {
      return value;
    }
    if (fraction && !Double.isNaN(((Number) value).doubleValue()) && !Double.isInfinite(((Number) value).doubleValue())) {
      return value;
    }
    throw new IllegalArgumentException(
        "attribute " + key + ": given " + value + ", allowed is a String, a Boolean, a whole number of 64 bits or a"
            + " finite Double");
  }
}
