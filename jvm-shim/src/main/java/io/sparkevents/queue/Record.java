package io.sparkevents.queue;

import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;

/**
 * One fact from Spark, for the sidecar.
 *
 * <p>The listener thread only captures values. The writer thread later creates the line of JSON and stores it, so that
 * a new sidecar receives the same line.
 */
public class Record {
  /** Writes the fields of a record. Runs on the writer thread, so it may use only immutable values. */
  public interface Body {
    void writeTo(JsonGenerator json) throws IOException;
  }

  /** Order in which a full queue drops records, the lowest first. */
  public enum Priority {
    ROUTINE,
    LIFECYCLE,
    /** Report of dropped records, which is never dropped itself. */
    ACCOUNT
  }

  /** Rank of a subject in the {@link RestoreState}. Beyond the limit, subjects of the lowest rank are removed first. */
  public enum Rank {
    /** A query run that has ended. */
    OVER,
    /** A job or a stage. If Spark drops its end event, the subject stays until the limit removes the subject. */
    WORK,
    /** A query run. */
    RUN,
    /** The application: a single subject, which is never removed, because every event needs it. */
    APPLICATION
  }

  /** Effect of a record on the {@link RestoreState}. */
  public static final class Change {
    private final Subject subject;
    private final Rank rank;

    private Change(Subject subject, Rank rank) {
      this.subject = subject;
      this.rank = rank;
    }

    /** Keeps the record for its subject; replaces an earlier record of the same kind. */
    public static Change keep(Subject subject, Rank rank) {
      return new Change(subject, rank);
    }

    /** Removes the subject, which has ended. */
    public static Change forget(Subject subject) {
      return new Change(subject, null);
    }
  }

  public static final ObjectMapper JSON = new ObjectMapper();

  public final String kind;
  public final Priority priority;
  /** Null if the record has no effect on the {@link RestoreState}. */
  public final Subject subject;
  /** Null if the record removes the subject, or has no subject. */
  public final Rank rank;
  /** Next of the records that the restore state contains for the subject. Used under the queue's lock. */
  Record sibling;

  private final long observedMillis = System.currentTimeMillis();
  private final int capturedBytes;
  /** Null after the line is created, because the captured values may be large. */
  private Body body;
  private long seq;
  private byte[] line;

  /** Creates a record that has no effect on the {@link RestoreState}. */
  public Record(String kind, Priority priority, Body body) {
    this(kind, priority, null, body, 0);
  }

  public Record(String kind, Priority priority, Change change, Body body) {
    this(kind, priority, change, body, 0);
  }

  /** @param capturedBytes size of the texts that the body references; 0 if they are short */
  public Record(String kind, Priority priority, Change change, Body body, int capturedBytes) {
    this.kind = kind;
    this.priority = priority;
    // Copied, so that a drop loads fewer objects into the processor's cache.
    subject = change == null ? null : change.subject;
    rank = change == null ? null : change.rank;
    this.body = body;
    this.capturedBytes = capturedBytes;
  }

  /** Returns the record's number in this queue, which begins with 1; 0 before {@link #assign}. */
  public long seq() {
    return seq;
  }

  /** Sets {@link #seq}. The queue calls this method once, under its lock. */
  public void assign(long seq) {
    this.seq = seq;
  }

  /**
   * Returns the size in bytes: the constructor's argument, and the line's length as soon as there is a line. The writer
   * creates the line after it has taken the record, so the size does not change while {@link Waiting} counts it.
   */
  public int size() {
    return line == null ? capturedBytes : line.length;
  }

  /** Returns the record as one line of JSON with its newline. Not thread-safe. */
  public byte[] line() throws IOException {
    if (line == null) {
      line = json(json -> {
        write(json, "seq", seq, "kind", kind, "at", observedMillis);
        body.writeTo(json);
      });
      body = null;
    }
    return line;
  }

  /**
   * Writes fields of the current object.
   *
   * @param fields names and values in alternation; a value may be null, a string, a number, a map, a list or an array
   */
  public static void write(JsonGenerator json, Object... fields) throws IOException {
    for (int i = 0; i < fields.length; i += 2) {
      json.writeFieldName((String) fields[i]);
      Object value = fields[i + 1];
      // Jackson's mapper would need a tenth of a microsecond to determine the type of a value.
      if (value instanceof String) {
        json.writeString((String) value);
      } else if (value instanceof Long || value instanceof Integer) {
        json.writeNumber(((Number) value).longValue());
      } else {
        json.writeObject(value);
      }
    }
  }

  /**
   * Returns the object that {@code body} writes, as one line of UTF-8.
   *
   * <p>The line is first written as characters. Jackson's byte generator rejects lone surrogates, which a user's
   * message may contain; the charset encoder replaces them.
   */
  public static byte[] json(Body body) throws IOException {
    StringWriter text = new StringWriter(512);
    try (JsonGenerator json = JSON.getFactory().createGenerator(text)) {
      json.writeStartObject();
      body.writeTo(json);
      json.writeEndObject();
    }
    return text.append('\n').toString().getBytes(StandardCharsets.UTF_8);
  }
}
