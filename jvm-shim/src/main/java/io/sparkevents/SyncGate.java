package io.sparkevents;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * With {@code events.dispatcher.type=sync} the listener thread waits here until every reporter has
 * answered.
 *
 * <p>A deadline that passes costs it once: until the sidecar has caught up with the record that was
 * late, nobody waits.
 */
final class SyncGate {
  private static final Logger LOG = LoggerFactory.getLogger(SyncGate.class);

  private final HandoffQueue queue;
  private final long timeoutMillis;
  private long behind;
  private boolean warned;

  /** @param timeoutMillis how long to wait for one record; 0: never wait */
  SyncGate(HandoffQueue queue, long timeoutMillis) {
    this.queue = queue;
    this.timeoutMillis = timeoutMillis;
  }

  void pass(long seq) throws InterruptedException {
    if (timeoutMillis == 0 || seq == 0 || !queue.isAnswered(behind)) {
      return;
    }
    if (!queue.awaitAnswered(seq, timeoutMillis) && !queue.isClosed()) {
      behind = seq;
      if (!warned) {
        warned = true;
        LOG.warn(
            "spark-events: not every reporter has answered within events.dispatcher.sync.timeout ({} ms);"
                + " Spark is not held up again until they have caught up",
            timeoutMillis);
      }
    }
  }
}
