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
 * The queue between Spark's listener thread and the writer thread. It is bounded, an offer never waits, and it keeps a
 * record until the sidecar has acknowledged it, so a sidecar that dies loses none of them.
 *
 * <p>This class numbers records and says which thread waits for what; {@link RecordQueue} decides what is kept and dropped.
 */
public final class HandoffQueue {
  /** Acknowledged records are forgotten so many at a time: the listener's thread waits for the lock meanwhile. */
  private static final int SLICE = 32;
  private static final int BATCH = 64;
  /** The share of the driver's heap that records in flight may hold; waiting ones may hold twice that. */
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
  /** Every reporter has answered for the records up to here. */
  private long answeredThrough;
  private long ackedThrough;
  /** The present sidecar has read the records up to here. */
  private long readThrough;
  /** Since when a record is unread and no other was read. */
  private long unreadSinceNanos;
  private long unconfirmed;

  /**
   * @param prompt whether the writer is woken for each record: see {@link WriterWakeup}
   */
  public HandoffQueue(int capacity, boolean prompt) {
    this(capacity, prompt, Runtime.getRuntime().maxMemory() / SHARE);
  }

  /**
   * @param mostBytes limit for records in flight; see {@link RecordQueue}
   */
  public HandoffQueue(int capacity, boolean prompt, long mostBytes) {
    wakeup = new WriterWakeup(lock.newCondition(), prompt);
    // A record that is being written cannot make room: a small queue needs small batches.
    batch = Math.max(1, Math.min(BATCH, capacity / 8));
    records = new RecordQueue(capacity, mostBytes);
  }

  /** Offers a record whose answer no thread waits for. */
  public long offer(Record record) {
    return offer(record, false);
  }

  /**
   * Adds a record without ever waiting.
   *
   * @param awaited whether the caller waits for the answer: the writer is woken at once
   * @return its sequence number, or 0 where it was not taken
   */
  public long offer(Record record, boolean awaited) {
    lock.lock();
    try {
      if (finishing) {
        // Spark reports what ends with the application behind its end, and a JVM that exits does so, too: no loss.
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

  /** Counts a loss elsewhere; it is reported as losses here are. */
  public void countDropped(String where, String kind, long number) {
    underLock(
        () -> {
          records.drops.count(where, kind, number);
          wakeup.signal(true);
        });
  }

  /** Counts a record whose line reports its own loss. */
  public void countUnwritable() {
    underLock(records.drops::countReported);
  }

  /**
   * Waits until there are records, at most {@code millis}. The caller has written, and flushed if nothing more was to be
   * written, all that it got before.
   *
   * @param next gets the next records to be written, if there are any
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

  /** Whether there has ever been a record. */
  public boolean hasBeenUsed() {
    return locked(() -> lastSeq > 0);
  }

  public boolean hasPending() {
    return locked(() -> !records.isWaitingEmpty());
  }

  /** Everything up to {@code seq} has been delivered or counted, and is forgotten. */
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

  /** Every reporter has answered up to {@code seq}, though an event may be held back for a later one. */
  public void answered(long seq) {
    underLock(() -> advance(seq, seq));
  }

  /** The sidecar has read the records up to {@code seq}. */
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

  /** Whether a record has been waiting for so long, and the sidecar has read none meanwhile. */
  public boolean hasStalledFor(long millis) {
    long nanos = TimeUnit.MILLISECONDS.toNanos(millis);
    return locked(() -> hasUnread() && System.nanoTime() - unreadSinceNanos >= nanos);
  }

  public boolean isAnswered(long seq) {
    return locked(() -> answeredThrough >= seq);
  }

  /** Waits until every reporter has answered for {@code seq}; false when that was not in time. */
  public boolean awaitAnswered(long seq, long millis) throws InterruptedException {
    lock.lock();
    try {
      await(() -> answeredThrough >= seq || closed, millis);
      return answeredThrough >= seq;
    } finally {
      lock.unlock();
    }
  }

  /** Waits until all records are in the pipe, at most {@code millis}. */
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

  /** Whether a new sidecar would have nothing to be sent. */
  public boolean isAcknowledgedEntirely() {
    return locked(() -> records.size() == 0);
  }

  /** A new sidecar starts from the last acknowledgement: records in flight wait again. Returns what it must know first. */
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

  /** Takes in what happened before anything was listened to: no event, but a sidecar must know it. */
  public void know(Record record) {
    underLock(() -> records.context.apply(record));
  }

  /** No record is taken any more; the writer is woken to say so. */
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

  /** The writer looks up now or, if it is busy, before it waits next. */
  public void wakeWriter() {
    underLock(wakeup::wake);
  }

  /** There is no sidecar and there will be none: threads that wait go on, records are dropped. */
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

  /** How many records are known to be lost. */
  public long dropped() {
    return locked(records.drops::total);
  }

  /** After {@link #close}: how many records a sidecar was given and did not acknowledge. */
  public long unconfirmed() {
    return locked(() -> unconfirmed);
  }

  /** The last account that was made since the last call, for the log, or null. */
  public String takeDropNotice() {
    return records.drops.takeNotice();
  }

  /** What was dropped and is in no account, as text; empty where there is nothing. */
  public String untoldDrops() {
    return locked(records.drops::unreported);
  }

  /** After {@link #close}: what no sidecar has reported, by kind of record. */
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
