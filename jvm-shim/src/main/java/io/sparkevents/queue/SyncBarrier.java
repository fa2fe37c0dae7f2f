package io.sparkevents.queue;

import io.sparkevents.config.Settings;
import java.util.Collection;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Blocks the listener thread until the reporters have answered.
 *
 * <p>With the dispatcher type sync, the barrier waits for every record. With async-queued, it waits only for records
 * whose events may go to a reporter with {@code delivery.guarantee=guaranteed}. The sidecar sends the kinds of these
 * records when it is ready.
 *
 * <p>If a reporter is late, the sidecar answers without it. If the sidecar itself hangs, the listener thread waits once
 * for the whole timeout, and not again until the sidecar has caught up.
 *
 * <p>While the application ends, Spark waits for its listeners, so the barrier's waits use up the shutdown timeout. For
 * the first half of the timeout, the barrier waits for answers. For the next quarter, it waits only until half of the
 * queue is free. In this quarter, a slow reporter receives large batches, and the queue does not overflow. In the last
 * quarter, the barrier does not wait.
 */
public final class SyncBarrier {
  private static final Logger LOG = LoggerFactory.getLogger(SyncBarrier.class);

  /** Added to the timeout, because the sidecar checks for late reporters only several times a second. */
  private static final long GRACE_MILLIS = 500;
  /** Interval between checks of whether the application is ending or the queue is closed. */
  private static final long LOOK_MILLIS = 100;

  private final RecordQueue queue;
  private final long timeoutMillis;
  private final BooleanSupplier isEnding;
  private final long mostAtTheEndMillis;
  private final long mostForRoomMillis;
  /** Kinds of records to wait for; null for all. */
  private volatile Set<String> awaited;
  /** The newest record up to which all reporters have answered. */
  private long answeredSeq;
  /** The last record for which the reporters were late. */
  private long lateSeq;
  private boolean warned;
  /** Written by the listener thread only. */
  private volatile long spentAtTheEndNanos;

  /**
   * Creates a barrier, which waits for all kinds until the sidecar has sent the list of kinds.
   *
   * @param isEnding whether the application is ending; called for each awaited record and during each wait
   */
  public SyncBarrier(Settings settings, RecordQueue queue, BooleanSupplier isEnding) {
    this.queue = queue;
    this.isEnding = isEnding;
    timeoutMillis = settings.syncTimeoutMillis;
    mostAtTheEndMillis = settings.shutdownTimeoutMillis / 2;
    mostForRoomMillis = mostAtTheEndMillis + settings.shutdownTimeoutMillis / 4;
  }

  /** Returns the milliseconds spent waiting while the application was ending. */
  public long spentAtTheEndMillis() {
    return TimeUnit.NANOSECONDS.toMillis(spentAtTheEndNanos);
  }

  /** Sets the kinds of records to wait for; null for all. */
  public void await(Collection<?> kinds) {
    awaited = kinds == null ? null : kinds.stream().map(String::valueOf).collect(Collectors.toSet());
  }

  /** Notes that all reporters have answered for the records up to {@code seq}; some may not be acknowledged yet. */
  public synchronized void answered(long seq) {
    answeredSeq = Math.max(answeredSeq, seq);
    notifyAll();
  }

  public synchronized boolean isAnswered(long seq) {
    return answeredSeq >= seq;
  }

  /** Waits until all reporters have answered for {@code seq}; returns false after {@code millis}. */
  public synchronized boolean awaitAnswered(long seq, long millis) throws InterruptedException {
    Timeout timeout = new Timeout();
    timeout.setAfter(millis);
    while (answeredSeq < seq && !queue.isClosed() && !timeout.hasPassed()) {
      wait(Math.min(LOOK_MILLIS, timeout.millisLeft() + 1));
    }
    return answeredSeq >= seq;
  }

  /** Enqueues the record, and waits for the reporters' answers if its kind is awaited. An interrupt ends the wait. */
  public void pass(Record record) {
    Set<String> kinds = awaited;
    boolean isAwaited = (kinds == null || kinds.contains(record.kind)) && isAnswered(lateSeq);
    boolean waits = isAwaited && !hasSpentItsPart();
    long seq = queue.offer(record);
    if (seq == 0 || !isAwaited) {
      return;
    }
    if (waits) {
      queue.writer.wake();
      Threads.untilInterrupted(() -> await(seq));
    } else {
      Threads.untilInterrupted(() -> awaitRoom(seq));
    }
  }

  private void await(long seq) throws InterruptedException {
    long left = timeoutMillis + GRACE_MILLIS;
    boolean isAnswered = false;
    while (!isAnswered && left > 0 && !hasSpentItsPart()) {
      // Check again, because the application may begin to end during the wait.
      long most = Math.min(left, LOOK_MILLIS);
      boolean ends = isEnding.getAsBoolean();
      long began = System.nanoTime();
      isAnswered = awaitAnswered(seq, most) || queue.isClosed();
      left -= most;
      if (ends) {
        spentAtTheEndNanos += System.nanoTime() - began;
      }
    }
    if (!isAnswered && left <= 0) {
      lateSeq = seq;
      if (!warned) {
        warned = true;
        LOG.warn(
            "[spark-events] the sidecar did not answer within {} ms (spark.events.dispatcher.sync.timeout);"
                + " Spark does not wait again until the sidecar has caught up; check the reporters' log messages",
            timeoutMillis);
      }
    }
  }

  /** Waits until the records before this one fill at most half of the queue's capacity. */
  private void awaitRoom(long seq) throws InterruptedException {
    long began = System.nanoTime();
    awaitAnswered(seq - queue.capacity / 2, Math.max(0, mostForRoomMillis - spentAtTheEndMillis()));
    spentAtTheEndNanos += System.nanoTime() - began;
  }

  /** Whether the application is ending and has used up the time for these waits. */
  private boolean hasSpentItsPart() {
    return isEnding.getAsBoolean() && spentAtTheEndMillis() >= mostAtTheEndMillis;
  }
}
