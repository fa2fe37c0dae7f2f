package io.sparkevents;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import io.sparkevents.listener.AddedEvent;
import java.io.IOException;
import org.apache.spark.SparkContext;
import scala.Option;

/**
 * The door for events that a program makes itself, in any language of the JVM or by way of py4j.
 *
 * <p>They go over Spark's listener bus, so each is reported in its place among what Spark itself tells.
 */
public final class Events {
  private Events() {}

  /**
   * An event to be built and added.
   *
   * @param classScope which part of the program it is about, dotted
   * @param name what kind of fact
   * @throws IllegalArgumentException where one of them is empty
   */
  public static EventBuilder builder(String classScope, String name) {
    return new EventBuilder(classScope, name);
  }

  /**
   * Adds one event that is JSON already, and returns at once.
   *
   * @param event a JSON object: {@code id} (unique in the application), {@code name}, {@code class_scope}, and
   *     where known {@code body}, {@code severity}, {@code time} (milliseconds since the epoch), {@code attributes}
   * @return whether there is a Spark application to take it; whether anybody listens, the bus does not say
   * @throws IllegalArgumentException where the text is no such object
   */
  public static boolean add(String event) {
    check(event);
    Option<SparkContext> active = org.apache.spark.SparkContext$.MODULE$.getActive();
    if (active.isEmpty() || active.get().isStopped()) {
      return false;
    }
    active.get().listenerBus().post(new AddedEvent(event));
    return true;
  }

  /** On the caller's thread: what cannot be read must be told to whom it belongs. */
  private static void check(String event) {
    try (JsonParser parser = AddedEvent.JSON.createParser(event)) {
      if (parser.nextToken() != JsonToken.START_OBJECT) {
        throw new IllegalArgumentException("an event is a JSON object");
      }
      parser.skipChildren();
      if (parser.nextToken() != null) {
        throw new IllegalArgumentException("an event is one JSON object, and there is more behind it");
      }
    } catch (IOException malformed) {
      throw new IllegalArgumentException("an event is a JSON object: " + malformed.getMessage(), malformed);
    }
  }
}
