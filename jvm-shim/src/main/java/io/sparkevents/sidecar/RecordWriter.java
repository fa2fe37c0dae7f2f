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

/** What the queue holds, as the lines that a sidecar reads. Used by one thread, whoever writes or fetches them. */
public final class RecordWriter {
  /** Where the lines go. */
  public interface Sink {
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
  private final ListenerBusDrops listenerBus = new ListenerBusDrops();
  /** Kinds whose first unwritable record is in the log. */
  private final Set<String> unwritableKinds = new HashSet<>();
  private final Set<Record> told = Collections.newSetFromMap(new IdentityHashMap<>());

  public RecordWriter(HandoffQueue queue, int queueSize, Deadline deadline) {
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
  public void begin(Sink sink) throws IOException {
    next.clear();
    tellPast(sink);
    told.clear();
  }

  private void tellPast(Sink sink) throws IOException {
    for (Record known : queue.rewind()) {
      byte[] line = told.add(known) ? line(known) : null;
      if (line != null && !known.isUnwritable()) {
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
  public boolean next(Sink sink, long millis) throws IOException, InterruptedException {
    next.clear();
    listenerBus.look(queue, queue.isFinished());
    queue.take(next, millis);
    sayDrops();
    for (Record record : next) {
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

  /** The record's line, or the line that reports its loss: its values may be the user's, and may throw anything. */
  private byte[] line(Record record) throws IOException {
    try {
      return record.line();
    } catch (Throwable unwritable) {
      String why = Failures.describe(unwritable);
      if (unwritableKinds.add(record.kind)) {
        LOG.warn("spark-events: dropping a record of kind {} that cannot be written: {}", record.kind, why);
      } else {
        LOG.debug("spark-events: dropping another record of kind {} that cannot be written: {}", record.kind, why);
      }
      queue.countUnwritable();
      return record.lineOfLoss();
    }
  }

  private void sayDrops() {
    String notice = queue.takeDropNotice();
    if (notice == null) {
      return;
    }
    if (notice.startsWith(DropCounters.HANDOFF)) {
      LOG.warn(
          "spark-events: the handoff queue is full (events.dispatcher.queue.size = {}, or its share of the memory): {}",
          queueSize,
          notice);
    } else if (notice.startsWith(DropCounters.EARLIER_RUN)) {
      LOG.warn("spark-events: an earlier run of this application lost records and could not report them: {}", notice);
    } else if (notice.startsWith(DropCounters.SIDECAR)) {
      LOG.warn("spark-events: records were lost with a sidecar that died: {}", notice);
    } else {
      LOG.warn(
          "spark-events: Spark's own queue of listener events is full"
              + " (spark.scheduler.listenerbus.eventqueue.capacity): {}",
          notice);
    }
  }
}
