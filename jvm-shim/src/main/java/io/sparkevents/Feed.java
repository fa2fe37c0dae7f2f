package io.sparkevents;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Writes what the queue holds into the pipe of one sidecar after the other. Used by the supervisor's thread. */
final class Feed {
  private static final Logger LOG = LoggerFactory.getLogger(Sidecar.class);
  private static final byte[] RESTORED =
      "{\"kind\":\"restored\",\"record\":".getBytes(StandardCharsets.US_ASCII);
  private static final byte[] END = "}\n".getBytes(StandardCharsets.US_ASCII);
  private static final long IDLE_MILLIS = 1_000;

  private final HandoffQueue queue;
  private final int queueSize;
  private final Deadline deadline;

  Feed(HandoffQueue queue, int queueSize, Deadline deadline) {
    this.queue = queue;
    this.queueSize = queueSize;
    this.deadline = deadline;
  }

  /** Writes until the process ends (false) or all is said (true). */
  boolean run(SidecarProcess sidecar) throws InterruptedException {
    List<Record> next = new ArrayList<>();
    try {
      for (Record known : queue.rewind()) {
        writeRestored(sidecar, known);
      }
      queue.open(sidecar::writeAtOnce);
      while (!sidecar.hasEnded()) {
        queue.take(next, IDLE_MILLIS);
        sayDrops();
        for (Record record : next) {
          byte[] line = line(record);
          if (line == null) {
            queue.giveUp(record);
          } else {
            sidecar.write(line);
          }
        }
        if (!queue.hasPending()) {
          sidecar.flush();
        }
        if (next.isEmpty() && queue.isFinished()) {
          sidecar.write(
              Record.json(
                  json -> {
                    json.writeStringField("kind", "goodbye");
                    json.writeNumberField("within_ms", deadline.millisLeft());
                  }));
          sidecar.flush();
          return true;
        }
        next.clear();
      }
    } catch (IOException brokenPipe) {
      return false;
    } finally {
      queue.open(null);
    }
    return false;
  }

  private static void writeRestored(SidecarProcess sidecar, Record known) throws IOException {
    byte[] line = line(known);
    if (line != null) {
      sidecar.write(RESTORED);
      sidecar.write(Arrays.copyOf(line, line.length - 1)); // without its newline
      sidecar.write(END);
    }
  }

  /** The record's text, or null: one that cannot be written must not end the others' way. */
  private static byte[] line(Record record) {
    try {
      return record.line();
    } catch (IOException | RuntimeException | LinkageError unwritable) {
      LOG.warn("spark-events: a record of kind {} could not be written: {}", record.kind, unwritable.toString());
      return null;
    }
  }

  private void sayDrops() {
    String notice = queue.takeDropNotice();
    if (notice == null) {
      return;
    }
    if (notice.startsWith(Drops.HANDOFF)) {
      LOG.warn("spark-events: the handoff queue is full (events.dispatcher.queue.size = {}): {}", queueSize, notice);
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
