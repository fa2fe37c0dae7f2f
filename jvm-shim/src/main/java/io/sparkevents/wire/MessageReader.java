package io.sparkevents.wire;

import io.sparkevents.listener.Inspection;
import io.sparkevents.listener.QueryThreads;
import io.sparkevents.metrics.Statistics;
import io.sparkevents.queue.RecordQueue;
import io.sparkevents.queue.SyncBarrier;
import java.util.Collection;
import java.util.Map;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Handles messages from Python, in the sidecar or in-process: acknowledgements, log lines, events for the driver's log,
 * and reporters' counters.
 *
 * <p>Runs on the thread that reads the sidecar's output, or on Python's thread. Unknown messages are skipped, because a
 * newer Python package may send further kinds.
 */
public final class MessageReader {
  private static final Logger LOG = LoggerFactory.getLogger(MessageReader.class);

  private final RecordQueue queue;
  private final SyncBarrier barrier;
  private final Statistics statistics;
  private final DriverLog events;
  private final QueryThreads threads = new QueryThreads();
  public final RunMark mark = new RunMark();
  private volatile long nextSequence = 1;
  private volatile String memory = "";
  private volatile boolean warned;

  public MessageReader(RecordQueue queue, SyncBarrier barrier, Statistics statistics, DriverLog events) {
    this.queue = queue;
    this.barrier = barrier;
    this.statistics = statistics;
    this.events = events;
  }

  /** Returns the sequence number of the first event without an acknowledgement; a new sidecar continues from it. */
  public long nextSequence() {
    return nextSequence;
  }

  /** Returns what the sidecar asked to remember for the next sidecar. */
  public String memory() {
    return memory;
  }

  public void receive(Map<?, ?> answer) {
    try {
      understand(answer);
    } catch (Throwable malformed) {
      // A field is missing or has another type, or memory is low. Later messages must still be handled.
      if (!warned) {
        warned = true;
        warn(answer, malformed);
      }
    }
  }

  private static void warn(Map<?, ?> answer, Throwable malformed) {
    try {
      LOG.warn(
          "[spark-events] cannot read a message from Python: {}; skipping it, and later ones without a log message; if it is"
              + " an acknowledgement, its records stay queued; use the same version of the jar and of the Python package",
          answer,
          malformed);
    } catch (Throwable failed) {
      // An appender throws; the reading thread must continue.
    }
  }

  private void understand(Map<?, ?> answer) {
    switch (String.valueOf(answer.get("kind"))) {
      case "ready":
        barrier.await((Collection<?>) answer.get("awaited"));
        if (Boolean.TRUE.equals(answer.get("samples"))) {
          threads.start(queue::isClosed);
        }
        break;
      case "inspect":
        Inspection.answer(answer, threads);
        break;
      case "ack":
        nextSequence = number(answer, "sequence");
        // Make room first, because the answer lets the listener thread offer its next record.
        queue.acknowledge(number(answer, "seq"));
        barrier.answered(number(answer, "seq"));
        break;
      case "answered":
        queue.progress.read(number(answer, "seq"));
        barrier.answered(number(answer, "seq"));
        break;
      case "read":
        queue.progress.read(number(answer, "seq"));
        break;
      case "mark":
        mark.placed(String.valueOf(answer.get("folder")));
        break;
      case "log":
        DriverLog.write(LOG, String.valueOf(answer.get("level")), "[spark-events] " + answer.get("message"));
        break;
      case "event":
        events.receive(answer);
        break;
      case "remember":
        memory = (String) answer.get("memory");
        break;
      case "stats":
        statistics.receive(answer);
        break;
      default:
        break;
    }
  }

  private static long number(Map<?, ?> message, String key) {
    return ((Number) message.get(key)).longValue();
  }
}
