package io.sparkevents.queue;

import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BooleanSupplier;
import java.util.function.Supplier;

/**
 * Bounded queue between Spark's listener thread and the writer thread.
 *
 * <p>An offer never waits. The queue keeps each record until the sidecar has acknowledged it, so that a sidecar's death
 * loses no record that is still queued. This class numbers the records and coordinates the threads; {@link RecordQueue}
 * decides which records to keep and which to drop.
 */
public final class HandoffQueue {
  /** Acknowledged records removed under one hold of the lock, because the listener thread waits for it. */
  private static final int SLICE = 32;
  private static final int BATCH = 64;
  /** Divisor of the driver's heap: limit for the bytes in flight; waiting records may hold twice that. */
  private static final int SHARE = 16;

  private final ReentrantLock lock = new ReentrantLock();
  private final Condition progress = lock.newCondition();
  private final WriterWakeup wakeup;
  private final RecordQueue records;
  private final int batch;

  private boolean finishing;
  private boolean closed;
  private boolean allWritten = true;
  private long lastSeq;
  /** All reporters have answered for the records up to this number. */
  private long answeredThrough;
  private long ackedThrough;
  /** The present sidecar has read the records up to this number. */
  private long readThrough;
  /** Time of the last read, or of the first unread record if that is later. */
  private long unreadSinceNanos;
  private long unconfirmed;

  /**
   * @param prompt whether to wake the writer for each record; see {@link WriterWakeup}
   */
  public HandoffQueue(int capacity, boolean prompt) {
    this(capacity, prompt, Runtime.getRuntime().maxMemory() / SHARE);
  }

  /**
   * @param mostBytes limit for records in flight; see {@link RecordQueue}
   */
  public HandoffQueue(int capacity, boolean prompt, long mostBytes) {
    wakeup = new WriterWakeup(lock.newCondition(), prompt);
    // A record that is being written cannot be evicted, so a small queue needs small batches.
    batch = Math.max(1, Math.min(BATCH, capacity / 8));
    records = new RecordQueue(capacity, mostBytes);
  }

  /** Offers a record; no thread waits for the reporters' answer. */
  public long offer(Record record) {
    return offer(record, false);
  }

  /**
   * Adds a record without waiting.
   *
   * @param awaited whether a thread waits for the reporters' answer, so that the writer is woken at once
   * @return the sequence number, or 0 if the record was not accepted
   */
  public long offer(Record record, boolean awaited) {
    lock.lock();
    try {
      if (finishing) {
        // Not a loss: later records are about work that the application's end stops, or about the JVM's exit.
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
      if (wasIdle) {
        unreadSinceNanos = System.nanoTime();
      }
      wakeup.signal(awaited);
      return record.seq();
    } finally {
      lock.unlock();
    }
  }

  private boolean hasUnread() {
    return !records.isWaitingEmpty() || records.newestInFlight() > readThrough;
  }

  /** Counts records that were lost outside this queue; an account reports them like its own drops. */
  public void countDropped(String where, String kind, long number) {
    underLock(
        () -> {
          records.drops.count(where, kind, number);
          wakeup.signal(true);
        });
  }

  /** Counts a record whose own line reports its loss. */
  public void countUnwritable() {
    underLock(records.drops::countReported);
  }

  /**
   * Waits up to {@code millis} for records.
   *
   * <p>Call it only after writing all records of the previous call, and after a flush if no record is pending.
   *
   * @param next receives the next records to write, if there are any
   */
  public void take(List<Record> next, long millis) throws InterruptedException {
    lock.lock();
    try {
      records.written();
      if (records.isWaitingEmpty()) {
        allWritten = true;
        progress.signalAll();
        if (!finishing && !closed) {
          wakeup.await(millis);
        }
      }
      wakeup.seen();
      if (!closed && records.addAccount(finishing, lastSeq + 1)) {
        lastSeq++;
      }
      while (next.size() < batch && !records.isWaitingEmpty()) {
        next.add(records.take());
        allWritten = false;
        wakeup.busy();
      }
    } finally {
      lock.unlock();
    }
  }

  /** Whether a record was ever offered. */
  public boolean hasBeenUsed() {
    return locked(() -> lastSeq > 0);
  }

  public boolean hasPending() {
    return locked(() -> !records.isWaitingEmpty());
  }

  /** Removes all records up to {@code seq}: the sidecar has delivered, spooled or counted their events. */
  public void acknowledge(long seq) {
    boolean more = true;
    while (more) {
      lock.lock();
      try {
        ackedThrough = Math.max(ackedThrough, seq);
        advance(seq, seq);
        more = records.acknowledge(seq, SLICE);
      } finally {
        lock.unlock();
      }
    }
  }

  /** Notes that all reporters have answered for the records up to {@code seq}; some may not be acknowledged yet. */
  public void answered(long seq) {
    underLock(() -> advance(seq, seq));
  }

  /** Notes that the sidecar has read the records up to {@code seq}. */
  public void read(long seq) {
    underLock(() -> advance(seq, 0));
  }

  private void advance(long read, long answered) {
    if (read > readThrough) {
      readThrough = read;
      unreadSinceNanos = System.nanoTime();
    }
    if (answered > answeredThrough) {
      answeredThrough = answered;
      progress.signalAll();
    }
  }

  /** Whether records are unread and the sidecar has read none for {@code millis}. */
  public boolean hasStalledFor(long millis) {
    long nanos = TimeUnit.MILLISECONDS.toNanos(millis);
    return locked(() -> hasUnread() && System.nanoTime() - unreadSinceNanos >= nanos);
  }

  public boolean isAnswered(long seq) {
    return locked(() -> answeredThrough >= seq);
  }

  /** Waits until all reporters have answered for {@code seq}; false after {@code millis}. */
  public boolean awaitAnswered(long seq, long millis) throws InterruptedException {
    lock.lock();
    try {
      await(() -> answeredThrough >= seq || closed, millis);
      return answeredThrough >= seq;
    } finally {
      lock.unlock();
    }
  }

  /** Waits up to {@code millis} until all records are in the pipe. */
  public void awaitWritten(long millis) throws InterruptedException {
    lock.lock();
    try {
      await(() -> records.isWaitingEmpty() && allWritten || closed, millis);
    } finally {
      lock.unlock();
    }
  }

  private void await(BooleanSupplier condition, long millis) throws InterruptedException {
    long left = TimeUnit.MILLISECONDS.toNanos(millis);
    while (!condition.getAsBoolean() && left > 0) {
      left = progress.awaitNanos(left);
    }
  }

  /** Whether all records are acknowledged, so that a new sidecar would receive none. */
  public boolean isAcknowledgedEntirely() {
    return locked(() -> records.size() == 0);
  }

  /** Requeues the records in flight for a new sidecar; returns the restore state to send first. */
  public Collection<Record> rewind() {
    lock.lock();
    try {
      records.rewind();
      readThrough = ackedThrough;
      unreadSinceNanos = System.nanoTime();
      return records.context.records();
    } finally {
      lock.unlock();
    }
  }

  /** Adds a record to the restore state only: the fact is older than the listener and makes no event. */
  public void know(Record record) {
    underLock(() -> records.context.apply(record));
  }

  /** Stops accepting records, and wakes the writer. */
  public void finish() {
    underLock(
        () -> {
          finishing = true;
          wakeup.wake();
        });
  }

  public boolean isFinished() {
    return locked(() -> finishing && records.isWaitingEmpty());
  }

  public boolean isClosed() {
    return locked(() -> closed);
  }

  /** Wakes the writer now or, if it is busy, before its next wait. */
  public void wakeWriter() {
    underLock(wakeup::wake);
  }

  /** Ends the queue when no sidecar is left: releases waiting threads and drops all records. */
  public void close() {
    underLock(
        () -> {
          closed = true;
          unconfirmed += records.close();
          progress.signalAll();
          wakeup.wake();
        });
  }

  public int size() {
    return locked(records::size);
  }

  public int capacity() {
    return records.capacity;
  }

  /** Returns the number of records known to be lost. */
  public long dropped() {
    return locked(records.drops::total);
  }

  /** After {@link #close}: returns the number of records that a sidecar received and did not acknowledge. */
  public long unconfirmed() {
    return locked(() -> unconfirmed);
  }

  /** Returns the latest account of drops for the log, once, or null. */
  public String takeDropNotice() {
    return records.drops.takeNotice();
  }

  /** Returns the unreported drops as text; empty if there are none. */
  public String unreportedDrops() {
    return locked(records.drops::unreported);
  }

  /** After {@link #close}: returns the losses that no sidecar has reported, by kind of record. */
  public Map<String, Long> unreported() {
    return locked(
        () -> {
          Map<String, Long> all = records.drops.unreportedByKind();
          if (unconfirmed > 0) {
            all.put("unconfirmed", unconfirmed);
          }
          return all;
        });
  }

  private void underLock(Runnable change) {
    lock.lock();
    try {
      change.run();
    } finally {
      lock.unlock();
    }
  }

  private <T> T locked(Supplier<T> answer) {
    lock.lock();
    try {
      return answer.get();
    } finally {
      lock.unlock();
    }
  }
}
