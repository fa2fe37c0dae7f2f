package io.sparkevents.sidecar;

import io.sparkevents.metrics.Statistics;
import io.sparkevents.queue.HandoffQueue;
import io.sparkevents.queue.SyncBarrier;
import java.util.Collection;
import java.util.Map;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What the sidecar says: acknowledgements, its log, events for the driver's log, and its reporters'
 * numbers. Comes on the thread that reads it. What is not understood is skipped, for a newer sidecar
 * may say more.
 */
public final class SidecarMessages {
  private static final Logger LOG = LoggerFactory.getLogger(Sidecar.class);

  private final HandoffQueue queue;
  private final SyncBarrier gate;
  private final Statistics statistics;
  private final EventLog events;
  private volatile long nextSequence = 1;

  public SidecarMessages(HandoffQueue queue, SyncBarrier gate, Statistics statistics, EventLog events) {
    this.queue = queue;
    this.gate = gate;
    this.statistics = statistics;
    this.events = events;
  }

  /** The number of the event after those that are acknowledged: a new sidecar goes on counting there. */
  public long nextSequence() {
    return nextSequence;
  }

  public void receive(Map<?, ?> answer) {
    try {
      understand(answer);
    } catch (Throwable malformed) {
      // A field is missing or has another type, or memory is short: later messages must still be read.
      LOG.debug("spark-events: skipping a message of the sidecar: {}", answer, malformed);
    }
  }

  private void understand(Map<?, ?> answer) {
    switch (String.valueOf(answer.get("kind"))) {
      case "ready":
        gate.await((Collection<?>) answer.get("awaited"));
        break;
      case "ack":
        nextSequence = ((Number) answer.get("sequence")).longValue();
        queue.acknowledge(((Number) answer.get("through")).longValue());
        break;
      case "answered":
        queue.answered(((Number) answer.get("through")).longValue());
        break;
      case "read":
        queue.read(((Number) answer.get("through")).longValue());
        break;
      case "log":
        log(String.valueOf(answer.get("level")), String.valueOf(answer.get("message")));
        break;
      case "event":
        events.receive(answer);
        break;
      case "stats":
        statistics.receive(answer);
        break;
      default:
        break;
    }
  }

  private static void log(String level, String message) {
    if ("ERROR".equals(level)) {
      LOG.error("spark-events: {}", message);
    } else if ("WARNING".equals(level)) {
      LOG.warn("spark-events: {}", message);
    } else {
      LOG.info("spark-events: {}", message);
    }
  }
}
