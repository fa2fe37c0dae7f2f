package io.sparkevents.listener;

import com.fasterxml.jackson.core.JsonParser;
import io.sparkevents.queue.Record;
import org.apache.spark.scheduler.SparkListenerEvent;

/** Event that the user's program adds and that is posted to the listener bus. */
public final class AddedEvent implements SparkListenerEvent {
  private final String json;

  public AddedEvent(String json) {
    this.json = json;
  }

  /**
   * Excludes the event from Spark's event log, because a history server lacks this class and the content is private.
   */
  @Override
  public boolean logEvent() {
    return false;
  }

  public Record record() {
    return new Record(
        "added",
        Record.Priority.LIFECYCLE,
        null,
        out -> {
          try (JsonParser parser = Record.JSON.getFactory().createParser(json)) {
            parser.nextToken();
            out.writeFieldName("event");
            out.copyCurrentStructure(parser);
          }
        },
        json.length());
  }
}
