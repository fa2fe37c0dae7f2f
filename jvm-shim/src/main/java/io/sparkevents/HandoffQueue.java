package io.sparkevents;

import java.util.Collection;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Supplier;

/**
 * Between Spark's listener thread and the writer: bounded, and it keeps every record until the
 * sidecar has acknowledged it, so that a sidecar that dies costs nothing.
 *
 * <p>It never holds more than its capacity. When it is full, a record that the sidecar has already
 * been given makes room first (it lives on in the sidecar); only when the sidecar does not even read
 * is a record dropped, the least worthy and oldest first, and counted.
 */
final class HandoffQueue {
  /** So many records are acknowledged at a time: the listener's thread must not wait for long. */
  private static final int SLICE = 32;
  private static final int BATCH = 64;
  private static final long LINGER_NANOS = 500_000;
  private static final int LINGERS = 40;

  private final ReentrantLock lock = new ReentrantLock();
  private final Condition changed = lock.newCondition();
  private final Condition progressed = lock.newCondition();
  private final int capacity;
  private final int batch;
  private final boolean prompt;
  private final Pending pending = new Pending();
  private final Sent sent;
  private final Context context = new Context();
  private final Drops drops = new Drops();

  private boolean writerWaits;
  private int lingers;
  private boolean woken;
  private boolean finishing;
  private boolean closed;
  private boolean allWritten = true;
  private long lastSeq;
  private long ackedThrough;
  /** Up to here every reporter has answered, though something may be held back for a later event. */
  private long answeredThrough;
  private long unconfirmed;

  /**
   * @param prompt whether the writer is woken for each record, because somebody waits for the answer.
   *     Otherwise a writer that was busy just now looks by itself for a while: to wake a thread costs
   *     the listener more than all the rest.
   */
  HandoffQueue(int capacity, boolean prompt) {
    this.capacity = capacity;
    this.prompt = prompt;
    // What is being written cannot make room: with a small queue it has to be little.
    batch = Math.max(1, Math.min(BATCH, capacity / 8));
    sent = new Sent(Math.max(BATCH, 4 * Math.min(capacity, 1 << 20)));
  }

  /**
   * Takes the record in without ever waiting.
   *
   * @return its sequence number, or 0 where it was not taken
   */
  long offer(Record record) {
    lock.lock();
    try {
      record.assign(++lastSeq);
      if (closed || !(hasRoom() || makeRoom(record.worth))) {
        drop(record);
        return 0;
      }
      pending.addLast(record);
      if (writerWaits) {
        changed.signal();
      }
      return record.seq();
    } finally {
      lock.unlock();
    }
  }

  private boolean hasRoom() {
    return pending.size() + sent.size() < capacity;
  }

  private boolean makeRoom(Record.Worth worth) {
    Record written = sent.evict();
    if (written != null) {
      context.apply(written);
      return true;
    }
    Record least = pending.pollLeast(worth);
    if (least != null) {
      drop(least);
    }
    return least != null;
  }

  private void drop(Record record) {
    if (record.worth != Record.Worth.ACCOUNT) {
      drops.count(Drops.HANDOFF, record.kind, 1);
    }
    // The record is lost as an event, not as knowledge: a query that started still runs.
    context.apply(record);
  }

  /** Something was lost elsewhere; it is told in the same way as what is lost here. */
  void countDropped(String where, String kind, long number) {
    lock.lock();
    try {
      drops.count(where, kind, number);
      changed.signal();
    } finally {
      lock.unlock();
    }
  }

  /**
   * Waits until there are records, at most {@code millis}. Whoever calls this has written, and flushed
   * if there was nothing more to write, all that it got before.
   *
   * @param next gets the next records to be sent, if there are any
   */
  void take(List<Record> next, long millis) throws InterruptedException {
    lock.lock();
    try {
      sent.allWritten();
      if (pending.isEmpty()) {
        allWritten = true;
        progressed.signalAll();
        if (!finishing && !closed && !woken) {
          awaitRecords(millis);
        }
      }
      woken = false;
      tellDrops();
      while (next.size() < batch && !pending.isEmpty()) {
        Record record = pending.pollFirst();
        if (record.worth == Record.Worth.ACCOUNT) {
          drops.accountLeft();
        }
        sent.add(record);
        next.add(record);
        allWritten = false;
        lingers = LINGERS;
      }
    } finally {
      lock.unlock();
    }
  }

  private void awaitRecords(long millis) throws InterruptedException {
    if (!prompt && lingers > 0) {
      lingers--;
      changed.awaitNanos(LINGER_NANOS);
      return;
    }
    writerWaits = true;
    try {
      changed.await(millis, TimeUnit.MILLISECONDS);
    } finally {
      writerWaits = false;
    }
  }

  private void tellDrops() {
    long now = System.nanoTime();
    boolean last = finishing && pending.isEmpty();
    if (!closed && drops.isDue(now, last) && (hasRoom() || makeRoomForAccount())) {
      Record account = drops.account(now);
      account.assign(++lastSeq);
      pending.addLast(account);
    }
  }

  private boolean makeRoomForAccount() {
    Record written = sent.evict();
    if (written != null) {
      context.apply(written);
    }
    return written != null;
  }

  /** The record cannot be sent, now or ever. */
  void giveUp(Record record) {
    lock.lock();
    try {
      if (sent.remove(record)) {
        drop(record);
      }
    } finally {
      lock.unlock();
    }
  }

  boolean hasPending() {
    return locked(() -> !pending.isEmpty());
  }

  /** Everything up to {@code seq} has reached the end of its way and may be forgotten. */
  void acknowledge(long seq) {
    boolean more = true;
    while (more) {
      lock.lock();
      try {
        if (seq > ackedThrough) {
          ackedThrough = seq;
          answeredThrough = Math.max(answeredThrough, seq);
          sent.acknowledgedThrough(seq);
          progressed.signalAll();
        }
        Record record = null;
        for (int done = 0; done < SLICE && (record = sent.pollThrough(seq)) != null; done++) {
          context.apply(record);
        }
        more = record != null;
      } finally {
        lock.unlock();
      }
    }
  }

  /** Who waits for the answers up to {@code seq} need not wait for the acknowledgement. */
  void answered(long seq) {
    lock.lock();
    try {
      answeredThrough = Math.max(answeredThrough, seq);
      progressed.signalAll();
    } finally {
      lock.unlock();
    }
  }

  /** Waits until every reporter has answered for {@code seq}; false when that was not in time. */
  boolean awaitAnswered(long seq, long millis) throws InterruptedException {
    lock.lock();
    try {
      // A writer that looks by itself would do so too late for one who waits.
      changed.signal();
      long left = TimeUnit.MILLISECONDS.toNanos(millis);
      while (answeredThrough < seq && !closed && left > 0) {
        left = progressed.awaitNanos(left);
      }
      return answeredThrough >= seq;
    } finally {
      lock.unlock();
    }
  }

  /** Waits until all records are in the pipe, at most {@code millis}. */
  void awaitWritten(long millis) throws InterruptedException {
    lock.lock();
    try {
      long left = TimeUnit.MILLISECONDS.toNanos(millis);
      while (!(pending.isEmpty() && allWritten) && !closed && left > 0) {
        left = progressed.awaitNanos(left);
      }
    } finally {
      lock.unlock();
    }
  }

  /** Nothing is left that a new sidecar would have to be sent. */
  boolean isAcknowledgedEntirely() {
    return locked(() -> pending.isEmpty() && sent.isEmpty());
  }

  boolean isAnswered(long seq) {
    return locked(() -> answeredThrough >= seq);
  }

  /** A new sidecar starts from the last acknowledgement: what was sent is to be sent again. */
  Collection<Record> rewind() {
    lock.lock();
    try {
      for (Record record = sent.pollLast(); record != null; record = sent.pollLast()) {
        pending.addFirst(record);
      }
      sent.loseTraces(kind -> drops.count(Drops.SIDECAR, kind, 1));
      return context.records();
    } finally {
      lock.unlock();
    }
  }

  /** It has happened before anybody listened: no event, but what a sidecar must know. */
  void know(Record record) {
    lock.lock();
    try {
      context.apply(record);
    } finally {
      lock.unlock();
    }
  }

  /** No record will come any more; the writer is woken to say so. */
  void finish() {
    lock.lock();
    try {
      finishing = true;
      changed.signalAll();
    } finally {
      lock.unlock();
    }
  }

  boolean isFinished() {
    return locked(() -> finishing && pending.isEmpty());
  }

  boolean isClosed() {
    return locked(() -> closed);
  }

  /** The writer looks up, now or, if it is busy, when it would wait next. */
  void wakeWriter() {
    lock.lock();
    try {
      woken = true;
      changed.signalAll();
    } finally {
      lock.unlock();
    }
  }

  /** There is no sidecar and there will be none: whoever waits goes on, whatever is held is dropped. */
  void close() {
    lock.lock();
    try {
      closed = true;
      for (Record record = pending.pollFirst(); record != null; record = pending.pollFirst()) {
        drop(record);
      }
      sent.loseTraces(kind -> unconfirmed++);
      while (sent.pollLast() != null) {
        unconfirmed++;
      }
      progressed.signalAll();
      changed.signalAll();
    } finally {
      lock.unlock();
    }
  }

  /** How many records it holds. */
  int size() {
    return locked(() -> pending.size() + sent.size());
  }

  int capacity() {
    return capacity;
  }

  /** How many records were dropped, by all that is known. */
  long dropped() {
    return drops.total();
  }

  /** After {@link #close}: how many records the sidecar had been given, of which it has not said what became. */
  long unconfirmed() {
    return locked(() -> unconfirmed);
  }

  /** What was told as a record since this was asked last, or null. */
  String takeDropNotice() {
    return drops.takeNotice();
  }

  /** What was dropped and never told as a record; empty where there is nothing. */
  String untoldDrops() {
    lock.lock();
    try {
      return drops.unreported();
    } finally {
      lock.unlock();
    }
  }

  /** An answer that nothing changes while it is given. */
  private <T> T locked(Supplier<T> answer) {
    lock.lock();
    try {
      return answer.get();
    } finally {
      lock.unlock();
    }
  }
}
