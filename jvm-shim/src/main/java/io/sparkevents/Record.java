package io.sparkevents;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import java.io.IOException;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;

/**
 * One fact from Spark on its way to the sidecar.
 *
 * <p>The listener thread only captures values; the JSON text is made later, on the writer's thread,
 * and kept, so that a record that must be sent again to a new sidecar is the same text.
 */
class Record {
  /** Writes the fields of a record; runs on the writer's thread, so it may touch immutable values only. */
  interface Body {
    void writeTo(JsonGenerator json) throws IOException;
  }

  /** What is given up first when the driver has to drop records. */
  enum Worth {
    ROUTINE,
    LIFECYCLE,
    /** Tells what was lost: never given up itself. */
    ACCOUNT
  }

  private static final JsonFactory JSON = new JsonFactory();

  final String kind;
  final Worth worth;
  /** What a restarted sidecar must be told again, or null: see {@link Context}. */
  final Context.Change change;

  private final long observedMillis;
  private final int captured;
  /** Null once the line is made: what it has captured may be large. */
  private Body body;
  private long seq;
  private byte[] line;
  private boolean unwritable;

  Record(String kind, Worth worth, Context.Change change, Body body) {
    this(kind, worth, change, body, 0);
  }

  /**
   * @param captured how many bytes its body holds; 0: few, or nobody knows
   */
  Record(String kind, Worth worth, Context.Change change, Body body, int captured) {
    this.captured = captured;
    this.kind = kind;
    this.worth = worth;
    this.change = change;
    this.body = body;
    this.observedMillis = System.currentTimeMillis();
  }

  long seq() {
    return seq;
  }

  /** Called once, by the queue, under its lock. */
  void assign(long number) {
    seq = number;
  }

  /** How many bytes it holds, as far as that is known: its line, or what it has captured for that. */
  int size() {
    return line == null ? captured : line.length;
  }

  /** The record as one line of JSON, newline included. For one thread at a time. */
  byte[] line() throws IOException {
    if (line == null) {
      line =
          json(
              json -> {
                json.writeNumberField("seq", seq);
                json.writeStringField("kind", kind);
                json.writeNumberField("at", observedMillis);
                body.writeTo(json);
              });
      body = null;
    }
    return line;
  }

  /**
   * The line of a record whose {@link #line()} threw: it reports the loss, under the record's number, so that the sidecar
   * acknowledges it as any other.
   */
  byte[] lineOfLoss() throws IOException {
    unwritable = true;
    line =
        json(
            json -> {
              json.writeNumberField("seq", seq);
              json.writeStringField("kind", "dropped");
              json.writeNumberField("at", observedMillis);
              json.writeStringField("where", DropCounters.UNWRITABLE);
              json.writeObjectFieldStart("records");
              json.writeNumberField(kind, 1);
              json.writeEndObject();
            });
    body = null;
    return line;
  }

  boolean isUnwritable() {
    return unwritable;
  }

  /**
   * An object written by {@code body} as one line. Written as characters first: the byte generator
   * refuses the lone surrogates that a user's message may hold, the charset encoder replaces them.
   */
  static byte[] json(Body body) throws IOException {
    StringWriter text = new StringWriter(512);
    try (JsonGenerator json = JSON.createGenerator(text)) {
      json.writeStartObject();
      body.writeTo(json);
      json.writeEndObject();
    }
    return text.append('\n').toString().getBytes(StandardCharsets.UTF_8);
  }
}
