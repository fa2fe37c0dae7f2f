package io.sparkevents.listener;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import io.sparkevents.queue.Priority;
import io.sparkevents.queue.Record;
import org.apache.spark.scheduler.SparkListenerEvent;

/** An event of the program's own, on its way over the listener bus. */
public final class AddedEvent implements SparkListenerEvent {
  public static final JsonFactory JSON = new JsonFactory();

  private final String json;

  public AddedEvent(String json) {
    this.json = json;
  }

  /** Not in Spark's event log: a history server does not know this class, and what it holds is the program's. */
  @Override
  public boolean logEvent() {
    return false;
  }

  public Record record() {
    return new Record(
        "added",
        Priority.LIFECYCLE,
        null,
        out -> {
          try (JsonParser parser = JSON.createParser(json)) {
            parser.nextToken();
            out.writeFieldName("event");
            out.copyCurrentStructure(parser);
          }
        },
        json.length());
  }
}
