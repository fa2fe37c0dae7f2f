package io.sparkevents;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Set;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** What the queue holds, as the lines that a sidecar reads. Used by one thread, whoever writes or fetches them. */
final class Feed {
  /** Where the lines go. */
  interface Sink {
    void write(byte[] line) throws IOException;
  }

  private static final Logger LOG = LoggerFactory.getLogger(Sidecar.class);
  private static final byte[] RESTORED =
      "{\"kind\":\"restored\",\"record\":".getBytes(StandardCharsets.US_ASCII);
  private static final byte[] END = "}\n".getBytes(StandardCharsets.US_ASCII);

  private final HandoffQueue queue;
  private final int queueSize;
  private final Deadline deadline;
  private final List<Record> next = new ArrayList<>();
  private final Set<Record> told = Collections.newSetFromMap(new IdentityHashMap<>());

  Feed(HandoffQueue queue, int queueSize, Deadline deadline) {
    this.queue = queue;
    this.queueSize = queueSize;
    this.deadline = deadline;
  }

  /**
   * What one who starts must know of the past, to be said before it is ready: a driver that dies meanwhile has no other
   * witness.
   */
  byte[] past() throws IOException {
    told.clear();
    ByteArrayOutputStream lines = new ByteArrayOutputStream();
    tellPast(lines::write);
    return lines.toByteArray();
  }

  /** First of all, for one who is ready: of the past, what it has not been told. */
  void begin(Sink sink) throws IOException {
    next.clear();
    tellPast(sink);
    told.clear();
  }

  private void tellPast(Sink sink) throws IOException {
    for (Record known : queue.rewind()) {
      byte[] line = told.add(known) ? line(known) : null;
      if (line != null) {
        sink.write(RESTORED);
        sink.write(Arrays.copyOf(line, line.length - 1)); // without its newline
        sink.write(END);
      }
    }
  }

  /**
   * Writes what comes next; waits for it at most {@code millis}.
   *
   * @return whether that was the goodbye, behind which nothing comes
   */
  boolean next(Sink sink, long millis) throws IOException, InterruptedException {
    next.clear();
    queue.take(next, millis);
    boolean more = true;
    while (more) {
      more = queue.makeRoomAhead();
    }
    sayDrops();
    for (Record record : next) {
      byte[] line = line(record);
      if (line == null) {
        queue.giveUp(record);
      } else {
        sink.write(line);
      }
    }
    if (!next.isEmpty() || !queue.isFinished()) {
      return false;
    }
    sink.write(
        Record.json(
            json -> {
              json.writeStringField("kind", "goodbye");
              json.writeNumberField("within_ms", deadline.millisLeft());
              json.writeNumberField("dropped", queue.dropped());
            }));
    return true;
  }

  /** The record's text, or null: one that cannot be written must not end the others' way. */
  private static byte[] line(Record record) {
    try {
      return record.line();
    } catch (Throwable unwritable) {
      // What it tells of may be the user's: anything can be thrown there, also an Error.
      LOG.warn("spark-events: a record of kind {} could not be written: {}", record.kind, Failures.describe(unwritable));
      return null;
    }
  }

  private void sayDrops() {
    String notice = queue.takeDropNotice();
    if (notice == null) {
      return;
    }
    if (notice.startsWith(Drops.HANDOFF)) {
      LOG.warn(
          "spark-events: the handoff queue is full (events.dispatcher.queue.size = {}, or its share of the memory): {}",
          queueSize,
          notice);
    } else if (notice.startsWith(Drops.UNWRITABLE)) {
      // Each has been said with its reason.
      LOG.debug("spark-events: records could not be written: {}", notice);
    } else if (notice.startsWith(Drops.SIDECAR)) {
      LOG.warn("spark-events: records were lost with a sidecar that died: {}", notice);
    } else {
      LOG.warn(
          "spark-events: Spark's own queue of listener events is full"
              + " (spark.scheduler.listenerbus.eventqueue.capacity): {}",
          notice);
    }
  }
}
