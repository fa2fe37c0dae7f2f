package io.sparkevents.queue;

import io.sparkevents.config.Settings;
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
 * <p>Once the application is ending, Spark waits until its listeners have been told everything: what they still wait
 * for answers is of the time for the end, half of it at most. Then they wait only so that the queue does not overflow,
 * for another quarter, and a reporter that is slow gets large batches. What comes behind that is not waited for.
 */
public final class SyncBarrier {
  private static final Logger LOG = LoggerFactory.getLogger(SyncBarrier.class);

  /** The sidecar looks several times a second which reporters are late, and answers without them. */
  private static final long GRACE_MILLIS = 500;
  /** How often it is looked whether the application is ending. */
  private static final long LOOK_MILLIS = 100;

  private final HandoffQueue queue;
  private final long timeoutMillis;
  private final BooleanSupplier isEnding;
  private final long mostAtTheEndMillis;
  private final long mostForRoomMillis;
  /** False where the settings name no reporter to wait for: then nothing is awaited before the sidecar is ready, either. */
  private final boolean mayWait;
  /** Null: all kinds. */
  private volatile Set<String> awaited;
  private long behind;
  private boolean warned;
  /** Written by the listener's thread alone. */
  private volatile long spentAtTheEndNanos;

  private SyncBarrier(
      HandoffQueue queue, long timeoutMillis, boolean mayWait, BooleanSupplier isEnding, long shutdownTimeoutMillis) {
    this.queue = queue;
    this.timeoutMillis = timeoutMillis;
    this.mayWait = mayWait;
    this.isEnding = isEnding;
    mostAtTheEndMillis = shutdownTimeoutMillis / 2;
    mostForRoomMillis = mostAtTheEndMillis + shutdownTimeoutMillis / 4;
  }

  /**
   * Until the sidecar has named the kinds, every record may be one of them, where any may be.
   *
   * @param isEnding whether the application is ending: asked for each record that would be waited for, and while it is
   */
  public static SyncBarrier of(Settings settings, HandoffQueue queue, BooleanSupplier isEnding) {
    long shutdown = settings.shutdownTimeoutMillis();
    return new SyncBarrier(queue, settings.syncTimeoutMillis(), settings.waitsForAny(), isEnding, shutdown);
  }

  /** How long it has been waited while the application was ending. */
  public long spentAtTheEndMillis() {
    return TimeUnit.NANOSECONDS.toMillis(spentAtTheEndNanos);
  }

  /** The kinds of records that are waited for from now on; null: all. */
  public void await(Collection<?> kinds) {
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
  public void pass(Record record) {
    Set<String> kinds = awaited;
    boolean isAwaited = mayWait && (kinds == null || kinds.contains(record.kind)) && queue.isAnswered(behind);
    boolean waits = isAwaited && !hasSpentItsShare();
    long seq = queue.offer(record, waits);
    if (isAwaited && seq != 0) {
      try {
        if (waits) {
          await(seq);
        } else {
          awaitRoom(seq);
        }
      } catch (InterruptedException stopped) {
        Thread.currentThread().interrupt();
      }
    }
  }

  private void await(long seq) throws InterruptedException {
    long left = timeoutMillis + GRACE_MILLIS;
    boolean isAnswered = false;
    while (!isAnswered && left > 0 && !hasSpentItsShare()) {
      // The end may begin while this waits.
      long most = Math.min(left, LOOK_MILLIS);
      boolean ends = isEnding.getAsBoolean();
      long began = System.nanoTime();
      isAnswered = queue.awaitAnswered(seq, most) || queue.isClosed();
      left -= most;
      if (ends) {
        spentAtTheEndNanos += System.nanoTime() - began;
      }
    }
    if (!isAnswered && left <= 0) {
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

  /** Until at most half of the queue is before this record. */
  private void awaitRoom(long seq) throws InterruptedException {
    long began = System.nanoTime();
    queue.awaitAnswered(seq - queue.capacity() / 2, Math.max(0, mostForRoomMillis - spentAtTheEndMillis()));
    spentAtTheEndNanos += System.nanoTime() - began;
  }

  /** Whether the application is ending, and it has been waited for long enough since then. */
  private boolean hasSpentItsShare() {
    return isEnding.getAsBoolean() && spentAtTheEndMillis() >= mostAtTheEndMillis;
  }
}
