package io.sparkevents;

import com.fasterxml.jackson.core.JsonParser;
import org.apache.spark.scheduler.SparkListenerEvent;

/** An event of the program's own, on its way over the listener bus. */
final class AddedEvent implements SparkListenerEvent {
  private final String json;

  AddedEvent(String json) {
    this.json = json;
  }

  /** Not in Spark's event log: a history server does not know this class, and what it holds is the program's. */
  @Override
  public boolean logEvent() {
    return false;
  }

  Record record() {
    return new Record(
        "added",
        Record.Worth.LIFECYCLE,
        null,
        out -> {
          try (JsonParser parser = Events.JSON.createParser(json)) {
            parser.nextToken();
            out.writeFieldName("event");
            out.copyCurrentStructure(parser);
          }
        },
        json.length());
  }
}
