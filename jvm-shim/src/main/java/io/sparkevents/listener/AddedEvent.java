package io.sparkevents.listener;

import com.fasterxml.jackson.core.JsonParser;
import io.sparkevents.queue.Record;

/** Event that the user's program adds and that is posted to the listener bus. */
public final class AddedEvent extends BusEvent {
  private final String json;

  public AddedEvent(String json) {
    this.json = json;
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
