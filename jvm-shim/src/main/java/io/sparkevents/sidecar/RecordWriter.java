package io.sparkevents.sidecar;

import io.sparkevents.listener.Failures;
import io.sparkevents.queue.Deadline;
import io.sparkevents.queue.DropCounters;
import io.sparkevents.queue.HandoffQueue;
import io.sparkevents.queue.Record;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Set;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Writes the queued records as the lines that a sidecar reads. Used by one thread at a time. */
public final class RecordWriter {
  /** Destination of the lines. */
  public interface Sink {
    void write(byte[] line) throws IOException;
  }

  private static final Logger LOG = LoggerFactory.getLogger(Sidecar.class);
  private static final byte[] RESTORED =
      "{\"kind\":\"restored\",\"record\":".getBytes(StandardCharsets.US_ASCII);
  private static final byte[] END = "}\n".getBytes(StandardCharsets.US_ASCII);

  private final HandoffQueue queue;
  private final Deadline deadline;
  private final List<Record> next = new ArrayList<>();
  private final ListenerBusDrops listenerBus = new ListenerBusDrops();
  /** Kinds whose first unwritable record is already in the log. */
  private final Set<String> unwritableKinds = new HashSet<>();
  private final Set<Record> pastRecords = Collections.newSetFromMap(new IdentityHashMap<>());

  public RecordWriter(HandoffQueue queue, Deadline deadline) {
    this.queue = queue;
    this.deadline = deadline;
  }

  /**
   * Returns the restore state as lines for a sidecar that is starting.
   *
   * <p>The sidecar gets them before it is ready: if the driver dies while the sidecar starts, only the sidecar can
   * report it.
   */
  byte[] past() throws IOException {
    pastRecords.clear();
    ByteArrayOutputStream lines = new ByteArrayOutputStream();
    writePast(lines::write);
    return lines.toByteArray();
  }

  /** Writes, for a sidecar that is ready, the part of the restore state that {@link #past} did not contain. */
  public void begin(Sink sink) throws IOException {
    next.clear();
    writePast(sink);
    pastRecords.clear();
  }

  private void writePast(Sink sink) throws IOException {
    for (Record known : queue.rewind()) {
      byte[] line = pastRecords.add(known) ? line(known) : null;
      if (line != null && !known.isUnwritable()) {
        sink.write(RESTORED);
        sink.write(Arrays.copyOf(line, line.length - 1)); // without its newline
        sink.write(END);
      }
    }
  }

  /**
   * Writes the next records; waits for them up to {@code millis}.
   *
   * @return whether it wrote the goodbye, the last message
   */
  public boolean next(Sink sink, long millis) throws IOException, InterruptedException {
    next.clear();
    listenerBus.look(queue, queue.isFinished());
    queue.take(next, millis);
    for (Record record : next) {
      if (record instanceof DropCounters.Account) {
        log((DropCounters.Account) record);
      }
      sink.write(line(record));
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

  /** Returns the record's line, or a line that reports its loss if user values in the record throw. */
  private byte[] line(Record record) throws IOException {
    try {
      return record.line();
    } catch (Throwable unwritable) {
      String why = Failures.describe(unwritable);
      if (unwritableKinds.add(record.kind)) {
        LOG.warn(
            "spark-events: cannot write a record of kind {}; dropping and counting it, more are logged at DEBUG: {}",
            record.kind,
            why);
      } else {
        LOG.debug("spark-events: cannot write another record of kind {}; dropping it: {}", record.kind, why);
      }
      queue.countUnwritable();
      return record.lineOfLoss();
    }
  }

  private void log(DropCounters.Account drops) {
    switch (drops.where) {
      case DropCounters.HANDOFF:
        LOG.warn(
            "spark-events: the record queue is full (spark.events.dispatcher.queue.size = {}, or its share of the heap);"
                + " raise this key or the driver's memory; dropped: {}",
            queue.capacity(),
            drops.counts);
        break;
      case DropCounters.EARLIER_RUN:
        LOG.warn("spark-events: an earlier run of this application lost records; reporting them now: {}", drops.counts);
        break;
      case DropCounters.SIDECAR:
        LOG.warn("spark-events: a sidecar died with records that it had not acknowledged; they are lost: {}", drops.counts);
        break;
      default:
        LOG.warn(
            "spark-events: Spark's listener bus dropped {} before they reached spark-events;"
                + " raise spark.scheduler.listenerbus.eventqueue.capacity",
            drops.counts);
    }
  }
}
