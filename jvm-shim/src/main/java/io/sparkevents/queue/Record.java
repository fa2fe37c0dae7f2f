package io.sparkevents.queue;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import java.io.IOException;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.Collections;

/**
 * One fact from Spark for the sidecar.
 *
 * <p>The listener thread only captures values. The writer thread makes the JSON text later and keeps it, so that a
 * resend to a new sidecar has the same text.
 */
public class Record {
  /** Writes the fields of a record, on the writer thread: it may use immutable values only. */
  public interface Body {
    void writeTo(JsonGenerator json) throws IOException;
  }

  private static final JsonFactory JSON = new JsonFactory();

  public final String kind;
  public final Priority priority;
  /** Effect on the {@link RestoreState}, or null. */
  public final RestoreState.Change change;

  private final long observedMillis;
  private final int captured;
  /** Null once the line is made, because its captured values may be large. */
  private Body body;
  private long seq;
  private byte[] line;
  private boolean unwritable;

  public Record(String kind, Priority priority, RestoreState.Change change, Body body) {
    this(kind, priority, change, body, 0);
  }

  /**
   * @param captured number of bytes that the body holds; 0 if small or unknown
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

  /** Sets the sequence number. The queue calls it once, under its lock. */
  public void assign(long number) {
    seq = number;
  }

  /** Returns the known size in bytes: of the line, or of the values captured for it. */
  public int size() {
    return line == null ? captured : line.length;
  }

  /** Returns the record as one line of JSON with its newline. Not thread-safe. */
  public byte[] line() throws IOException {
    if (line == null) {
      encode(kind, body);
    }
    return line;
  }

  /**
   * Returns a line that reports the loss of this record, after {@link #line()} threw.
   *
   * <p>It has the record's number, so the sidecar acknowledges it like any other record.
   */
  public byte[] lineOfLoss() throws IOException {
    unwritable = true;
    encode("dropped", json -> DropCounters.write(json, DropCounters.UNWRITABLE, Collections.singletonMap(kind, 1L)));
    return line;
  }

  private void encode(String writtenKind, Body written) throws IOException {
    line =
        json(
            json -> {
              json.writeNumberField("seq", seq);
              json.writeStringField("kind", writtenKind);
              json.writeNumberField("at", observedMillis);
              written.writeTo(json);
            });
    body = null;
  }

  public boolean isUnwritable() {
    return unwritable;
  }

  /**
   * Returns the object that {@code body} writes, as one line of UTF-8.
   *
   * <p>It is written as characters first, because Jackson's byte generator rejects the lone surrogates that a user's
   * message may contain, while the charset encoder replaces them.
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
