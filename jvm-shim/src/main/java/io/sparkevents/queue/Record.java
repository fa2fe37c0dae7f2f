package io.sparkevents.queue;

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
public class Record {
  /** Writes the fields of a record; runs on the writer's thread, so it may touch immutable values only. */
  public interface Body {
    void writeTo(JsonGenerator json) throws IOException;
  }

  private static final JsonFactory JSON = new JsonFactory();

  public final String kind;
  public final Priority priority;
  /** What a restarted sidecar must be told again, or null: see {@link RestoreState}. */
  public final RestoreState.Change change;

  private final long observedMillis;
  private final int captured;
  /** Null once the line is made: what it has captured may be large. */
  private Body body;
  private long seq;
  private byte[] line;
  private boolean unwritable;

  public Record(String kind, Priority priority, RestoreState.Change change, Body body) {
    this(kind, priority, change, body, 0);
  }

  /**
   * @param captured how many bytes its body holds; 0: few, or nobody knows
   */
  public Record(String kind, Priority priority, RestoreState.Change change, Body body, int captured) {
    this.captured = captured;
    this.kind = kind;
    this.priority = priority;
    this.change = change;
    this.body = body;
    this.observedMillis = System.currentTimeMillis();
  }

  public long seq() {
    return seq;
  }

  /** Called once, by the queue, under its lock. */
  public void assign(long number) {
    seq = number;
  }

  /** How many bytes it holds, as far as that is known: its line, or what it has captured for that. */
  public int size() {
    return line == null ? captured : line.length;
  }

  /** The record as one line of JSON, newline included. For one thread at a time. */
  public byte[] line() throws IOException {
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
  public byte[] lineOfLoss() throws IOException {
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

  public boolean isUnwritable() {
    return unwritable;
  }

  /**
   * An object written by {@code body} as one line. Written as characters first: the byte generator
   * refuses the lone surrogates that a user's message may hold, the charset encoder replaces them.
   */
  public static byte[] json(Body body) throws IOException {
    StringWriter text = new StringWriter(512);
    try (JsonGenerator json = JSON.createGenerator(text)) {
      json.writeStartObject();
      body.writeTo(json);
      json.writeEndObject();
    }
    return text.append('\n').toString().getBytes(StandardCharsets.UTF_8);
  }
}
