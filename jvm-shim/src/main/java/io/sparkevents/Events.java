package io.sparkevents;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import io.sparkevents.listener.AddedEvent;
import io.sparkevents.listener.BusEvent;
import io.sparkevents.queue.Record;
import java.io.IOException;
import org.apache.spark.SparkContext;

/**
 * Entry point for programs that add their own events, from any JVM language or through py4j.
 *
 * <p>The events are posted to Spark's listener bus, so that reporters receive them in order with Spark's own events.
 */
public final class Events {
  private Events() {}

  /**
   * Returns a builder for an event.
   *
   * @param classScope dotted name of the part of the program that the event is about
   * @param name name of the kind of event
   * @throws IllegalArgumentException when a name is empty
   */
  public static EventBuilder builder(String classScope, String name) {
    return new EventBuilder(classScope, name);
  }

  /**
   * Posts one event that is already JSON, and returns immediately.
   *
   * @param event a JSON object: {@code id} (unique in the application), {@code name}, {@code class_scope}, and
   *     optionally {@code body}, {@code severity}, {@code time} (milliseconds since the epoch), {@code attributes}
   * @return whether a Spark application is running; the bus does not report whether a listener receives the event
   * @throws IllegalArgumentException when the string is not such an object
   */
  public static boolean add(String event) {
    check(event);
    SparkContext running = BusEvent.runningContext();
    if (running != null) {
      running.listenerBus().post(new AddedEvent(event));
    }
    return running != null;
  }

  /** Parse on the caller's thread, so that the exception is raised in the caller. */
  private static void check(String event) {
    try (JsonParser parser = Record.JSON.getFactory().createParser(event)) {
      if (parser.nextToken() != JsonToken.START_OBJECT) {
        throw new IllegalArgumentException("event: not a JSON object with id, name and class_scope");
      }
      parser.skipChildren();
      if (parser.nextToken() != null) {
        throw new IllegalArgumentException("event: text after the JSON object; pass exactly one object per call");
      }
    } catch (IOException malformed) {
      throw new IllegalArgumentException("event: invalid JSON: " + malformed.getMessage(), malformed);
    }
  }
}
