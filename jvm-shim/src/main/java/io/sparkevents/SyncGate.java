package io.sparkevents;

import java.util.Collection;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Where the listener thread waits for the reporters' answers: with the dispatcher type sync for every
 * record; with async-queued only for the kinds that a reporter with {@code
 * delivery.guarantee=guaranteed} may get events from, which the sidecar names when it is ready.
 *
 * <p>Of a reporter that is late the sidecar says so, and answers without it. Should the sidecar itself be
 * stuck, that costs the whole timeout once: the thread does not wait again until it has caught up.
 *
 * <p>Once the application is ending, Spark waits until its listeners have been told everything. Then nobody waits for
 * each answer, but only for so many that the queue does not overflow: a reporter that is slow gets large batches. What
 * that takes is of the time for the end, half of it at most.
 */
final class SyncGate {
  private static final Logger LOG = LoggerFactory.getLogger(SyncGate.class);

  /** The sidecar looks several times a second which reporters are late, and answers without them. */
  private static final long GRACE_MILLIS = 500;

  private final HandoffQueue queue;
  private final long timeoutMillis;
  private final BooleanSupplier isEnding;
  private final long mostAtTheEndMillis;
  /** Where nobody is to be waited for, we listen among Spark's own listeners: then no sidecar can make us wait. */
  private final boolean mayWait;
  /** Null: all kinds. */
  private volatile Set<String> awaited;
  private long behind;
  private boolean warned;
  /** Written by the listener's thread alone. */
  private volatile long spentAtTheEndNanos;

  private SyncGate(
      HandoffQueue queue, long timeoutMillis, boolean mayWait, BooleanSupplier isEnding, long mostAtTheEndMillis) {
    this.queue = queue;
    this.timeoutMillis = timeoutMillis;
    this.mayWait = mayWait;
    this.isEnding = isEnding;
    this.mostAtTheEndMillis = mostAtTheEndMillis;
  }

  /**
   * Until the sidecar has named the kinds, every record may be one of them, where any may be.
   *
   * @param isEnding whether the application is ending: asked for each record that would be waited for
   */
  static SyncGate of(Settings settings, HandoffQueue queue, BooleanSupplier isEnding) {
    long mostAtTheEnd = settings.shutdownTimeoutMillis() / 2;
    return new SyncGate(queue, settings.syncTimeoutMillis(), settings.waitsForAny(), isEnding, mostAtTheEnd);
  }

  /** How long it has been waited while the application was ending. */
  long spentAtTheEndMillis() {
    return TimeUnit.NANOSECONDS.toMillis(spentAtTheEndNanos);
  }

  /** The kinds of records that are waited for from now on; null: all. */
  void await(Collection<?> kinds) {
    if (kinds == null) {
      awaited = null;
      return;
    }
    Set<String> named = new HashSet<>();
    for (Object kind : kinds) {
      named.add(String.valueOf(kind));
    }
    awaited = named;
  }

  /** Puts the record into the queue, and waits for the answers where somebody wants that; an interruption ends the wait. */
  void pass(Record record) {
    Set<String> kinds = awaited;
    boolean isAwaited = mayWait && (kinds == null || kinds.contains(record.kind)) && queue.isAnswered(behind);
    boolean ends = isAwaited && isEnding.getAsBoolean();
    boolean waits = isAwaited && !(ends && spentAtTheEndMillis() >= mostAtTheEndMillis);
    long seq = queue.offer(record, waits && !ends);
    if (waits && seq != 0) {
      try {
        if (ends) {
          awaitAtTheEnd(seq);
        } else {
          await(seq);
        }
      } catch (InterruptedException stopped) {
        Thread.currentThread().interrupt();
      }
    }
  }

  private void await(long seq) throws InterruptedException {
    if (!queue.awaitAnswered(seq, timeoutMillis + GRACE_MILLIS) && !queue.isClosed()) {
      behind = seq;
      if (!warned) {
        warned = true;
        LOG.warn(
            "spark-events: the sidecar has not answered within events.dispatcher.sync.timeout ({} ms);"
                + " Spark is not held up again until it has caught up",
            timeoutMillis);
      }
    }
  }

  private void awaitAtTheEnd(long seq) throws InterruptedException {
    long began = System.nanoTime();
    long ahead = queue.capacity() / 2;
    queue.awaitAnswered(seq - ahead, Math.min(timeoutMillis + GRACE_MILLIS, mostAtTheEndMillis - spentAtTheEndMillis()));
    spentAtTheEndNanos += System.nanoTime() - began;
  }
}
