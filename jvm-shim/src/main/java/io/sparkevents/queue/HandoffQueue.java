package io.sparkevents.queue;

import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;

/**
 * Bounded queue between Spark's listener thread and the writer thread.
 *
 * <p>An offer never waits. The queue keeps each record until the sidecar has acknowledged it. If the sidecar dies, the
 * records that are still in the queue are not lost. This class numbers the records and coordinates the threads, with
 * one monitor. {@link RecordQueue} decides which records to keep and which to drop.
 *
 * <p>Waking a thread takes the listener longer than all other work of a callback. Therefore a busy writer polls for a
 * while before it sleeps. While it polls, the listener does not wake it, unless a thread waits for the answer.
 */
public final class HandoffQueue {
  private static final int BATCH = 64;
  /**
   * The driver's heap divided by this number is the limit for the bytes in flight; the limit for waiting records is
   * twice that.
   */
  private static final int SHARE = 16;
  private static final long POLL_MILLIS = 2;
  private static final int POLLS = 3;

  private final RecordQueue records;
  private final int batch;

  private boolean finishing;
  private boolean closed;
  /** Remaining number of polls before the writer sleeps. */
  private int pollsLeft;
  private boolean asleep;
  /** Number of threads that wait for progress; without such threads, an answer does not wake the writer. */
  private int waiting;
  /** Whether a thread woke the writer while the writer was busy; if so, the writer skips its next wait. */
  private boolean woken;
  private volatile boolean wasNearlyFull;
  private long lastSeq;
  /** Number of the newest record up to which all reporters have answered. */
  private long answeredThrough;
  /** Number of the newest record that the current sidecar has read. */
  private long readThrough;
  /** Time of the sidecar's last read, or of the first unread record if that time is later. */
  private long unreadSinceNanos;
  private long unconfirmed;

  public HandoffQueue(int capacity) {
    this(capacity, Runtime.getRuntime().maxMemory() / SHARE);
  }

  /** @param mostBytes limit for the records in flight; see {@link RecordQueue} */
  public HandoffQueue(int capacity, long mostBytes) {
    // A record cannot be evicted while it is being written, so a small queue needs small batches.
    batch = Math.max(1, Math.min(BATCH, capacity / 8));
    records = new RecordQueue(capacity, mostBytes);
  }

  /** Offers a record. No thread waits for the reporters' answer. */
  public long offer(Record record) {
    return offer(record, false);
  }

  /**
   * Adds a record without waiting.
   *
   * @param awaited whether a thread waits for the reporters' answer; if so, the writer is woken immediately
   * @return the sequence number, or 0 if the record was not accepted
   */
  public synchronized long offer(Record record, boolean awaited) {
    if (finishing) {
      // Not a loss: after the application has ended, records only describe work that Spark stops, or the JVM's exit.
      return 0;
    }
    boolean wasIdle = !hasUnread();
    record.assign(++lastSeq);
    if (closed) {
      records.drop(record);
      return 0;
    }
    if (!records.add(record)) {
      return 0;
    }
    wasNearlyFull = wasNearlyFull || records.isNearlyFull();
    unreadSinceNanos = wasIdle ? System.nanoTime() : unreadSinceNanos;
    if (asleep || awaited) {
      notifyAll();
    }
    return record.seq();
  }

  /** Whether the queue was ever 90 % full with records that were not yet sent to the sidecar. */
  public boolean wasNearlyFull() {
    return wasNearlyFull;
  }

  private boolean hasUnread() {
    return !records.isWaitingEmpty() || records.newestInFlight() > readThrough;
  }

  /** Counts records that were lost outside this queue; an account reports them like the queue's own drops. */
  public synchronized void countDropped(String where, String kind, long number) {
    records.drops.count(where, kind, number);
    wakeWriter();
  }

  /** Enqueues reports of all unreported drops, as far as the queue has space. */
  public synchronized void reportDrops() {
    records.drops.reportNow();
    while (!closed && !finishing && records.addAccount(false, lastSeq + 1)) {
      lastSeq++;
    }
    wakeWriter();
  }

  /**
   * Drops and counts a taken record whose line cannot be created. The next account follows at once, because a thread
   * may wait for the answer to a number that is not lower than the record's.
   */
  public synchronized void dropUnwritable(Record record) {
    records.forget(record);
    records.drops.reportNow();
    countDropped(DropCounters.UNWRITABLE, record.kind, 1);
  }

  /**
   * Waits up to {@code millis} for records.
   *
   * <p>Call this method only after writing all records of the previous call. If no record is pending, flush the pipe
   * first.
   *
   * @param next receives the next records to write; may stay empty
   */
  public synchronized void take(List<Record> next, long millis) throws InterruptedException {
    records.written();
    if (records.isWaitingEmpty()) {
      notifyAll();
      asleep = pollsLeft == 0;
      long longest = asleep ? millis : Math.min(POLL_MILLIS, millis);
      await(() -> woken || finishing || closed || !records.isWaitingEmpty(), longest);
      asleep = false;
      pollsLeft = Math.max(0, pollsLeft - 1);
    }
    woken = false;
    if (!closed && records.addAccount(finishing, lastSeq + 1)) {
      lastSeq++;
    }
    while (next.size() < batch && !records.isWaitingEmpty()) {
      next.add(records.take());
      pollsLeft = POLLS;
    }
  }

  /** Whether a record has ever been offered. */
  public synchronized boolean hasBeenUsed() {
    return lastSeq > 0;
  }

  public synchronized boolean hasPending() {
    return !records.isWaitingEmpty();
  }

  /** Removes all records up to {@code seq}, because the sidecar has delivered, spooled or counted their events. */
  public void acknowledge(long seq) {
    boolean more;
    do {
      synchronized (this) {
        advance(seq, seq);
        more = records.acknowledge(seq);
      }
    } while (more);
  }

  /** Records that all reporters have answered for the records up to {@code seq}; some may not be acknowledged yet. */
  public synchronized void answered(long seq) {
    advance(seq, seq);
  }

  /** Records that the sidecar has read the records up to {@code seq}. */
  public synchronized void read(long seq) {
    advance(seq, 0);
  }

  private void advance(long read, long answered) {
    if (read > readThrough) {
      readThrough = read;
      unreadSinceNanos = System.nanoTime();
    }
    if (answered > answeredThrough) {
      answeredThrough = answered;
      if (waiting > 0) {
        notifyAll();
      }
    }
  }

  /** Whether the sidecar has unread records and has read none for {@code millis}. */
  public synchronized boolean hasStalledFor(long millis) {
    return hasUnread() && System.nanoTime() - unreadSinceNanos >= TimeUnit.MILLISECONDS.toNanos(millis);
  }

  public synchronized boolean isAnswered(long seq) {
    return answeredThrough >= seq;
  }

  /** Waits until all reporters have answered for {@code seq}; returns false after {@code millis}. */
  public synchronized boolean awaitAnswered(long seq, long millis) throws InterruptedException {
    awaitProgress(() -> answeredThrough >= seq || closed, millis);
    return answeredThrough >= seq;
  }

  /** Waits up to {@code millis} until all records are in the pipe. */
  public synchronized void awaitWritten(long millis) throws InterruptedException {
    awaitProgress(() -> records.isAllWritten() || closed, millis);
  }

  /** Waits for the writer or for an answer. */
  private void awaitProgress(BooleanSupplier condition, long millis) throws InterruptedException {
    waiting++;
    try {
      await(condition, millis);
    } finally {
      waiting--;
    }
  }

  private void await(BooleanSupplier condition, long millis) throws InterruptedException {
    Deadline deadline = new Deadline();
    deadline.setAfter(millis);
    while (!condition.getAsBoolean() && !deadline.hasPassed()) {
      wait(deadline.millisLeft() + 1);
    }
  }

  /** Whether all records are acknowledged, so that a new sidecar would receive no record. */
  public synchronized boolean isAcknowledgedEntirely() {
    return records.size() == 0;
  }

  /** Requeues the records in flight for a new sidecar; returns the restore state to send first. */
  public synchronized Collection<Record> rewind() {
    records.rewind();
    readThrough = records.ackedThrough();
    unreadSinceNanos = System.nanoTime();
    return records.context.records();
  }

  /** Adds a record only to the restore state; the fact is older than the listener and causes no event. */
  public synchronized void know(Record record) {
    records.context.apply(record);
  }

  /** Stops accepting records, and wakes the writer. */
  public synchronized void finish() {
    finishing = true;
    wakeWriter();
  }

  /** Whether all records have been taken and the queue accepts no more records. */
  public synchronized boolean isFinished() {
    return finishing && records.isWaitingEmpty();
  }

  public synchronized boolean isClosed() {
    return closed;
  }

  /** Wakes the writer now or, if it is busy, before its next wait. */
  public synchronized void wakeWriter() {
    woken = true;
    notifyAll();
  }

  /** Closes the queue after the last sidecar: releases waiting threads and drops all records. */
  public synchronized void close() {
    closed = true;
    unconfirmed += records.close();
    wakeWriter();
  }

  public synchronized int size() {
    return records.size();
  }

  public int capacity() {
    return records.capacity;
  }

  /** Returns the number of records that are known to be lost. */
  public synchronized long dropped() {
    return records.drops.total;
  }

  /**
   * Returns the losses that no sidecar has reported, by kind of record; call this method after {@link #close}. {@code
   * unconfirmed} is the number of records that a sidecar received and did not acknowledge.
   */
  public synchronized Map<String, Long> unreported() {
    Map<String, Long> all = records.drops.unreported();
    if (unconfirmed > 0) {
      all.put("unconfirmed", unconfirmed);
    }
    return all;
  }
}
