package io.sparkevents;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import io.sparkevents.listener.AddedEvent;
import io.sparkevents.listener.BusEvent;
import io.sparkevents.queue.Record;
import java.io.IOException;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkEnv;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Entry point for programs that add their own events, from any JVM language or through py4j.
 *
 * <p>The events are posted to Spark's listener bus, so that reporters receive them in order with Spark's own events.
 */
public final class Events {
  private static final Logger LOG = LoggerFactory.getLogger(Events.class);
  private static final AtomicBoolean EXPLAINED = new AtomicBoolean();

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
   * @return whether this JVM is the driver of a running application; the bus does not report whether a listener
   *     receives the event. The first call that returns false logs what to do instead.
   * @throws IllegalArgumentException when the string is not such an object
   */
  public static boolean add(String event) {
    check(event);
    SparkContext running = BusEvent.runningContext();
    if (running != null) {
      running.listenerBus().post(new AddedEvent(event));
    } else if (EXPLAINED.compareAndSet(false, true)) {
      LOG.warn(
          "[spark-events] Events.add dropped an event, because {}; further dropped events are not logged",
          isExecutor()
              ? "this JVM is an executor and only the driver has the listener bus. Return the values from the task and"
                  + " add the event in the driver: collect them, count them with an accumulator, or call"
                  + " spark_events.enrich_batch, which reports its own events"
              : "no Spark application is running in this JVM: add events between the creation and the stop of the"
                  + " SparkContext");
    }
    return running != null;
  }

  private static boolean isExecutor() {
    SparkEnv env = SparkEnv.get();
    return env != null && !env.executorId().equals("driver");
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
