package io.sparkevents;

import java.io.IOException;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Supplier;

/**
 * Between Spark's listener thread and the writer: bounded, and it keeps every record until the
 * sidecar has acknowledged it, so that a sidecar that dies costs nothing.
 *
 * <p>Here is who waits for what, and the numbers of records; what makes room for what is in {@link Holdings}.
 */
final class HandoffQueue {
  /** So many records are forgotten at a time: the listener's thread must not wait for long. */
  private static final int SLICE = 32;
  private static final int BATCH = 64;
  /** Of the driver's memory, what the records may have that a sidecar was given; those that wait for it may have two. */
  private static final int SHARE = 16;

  private final ReentrantLock lock = new ReentrantLock();
  private final Progress progress = new Progress(lock.newCondition());
  private final int batch;
  private final Bell bell;
  private final Holdings held;

  private boolean finishing;
  private boolean closed;
  private boolean allWritten = true;
  private long lastSeq;
  private long unconfirmed;
  private long takenNanos = System.nanoTime();
  /** Null: there is none, or it is not to be used. */
  private Shortcut shortcut;

  /**
   * @param prompt whether the writer is woken for each record: see {@link Bell}
   */
  HandoffQueue(int capacity, boolean prompt) {
    this(capacity, prompt, Runtime.getRuntime().maxMemory() / SHARE);
  }

  /**
   * @param mostBytes of what a sidecar was given, so much is kept at most, and twice that of what waits
   */
  HandoffQueue(int capacity, boolean prompt, long mostBytes) {
    bell = new Bell(lock.newCondition(), prompt);
    // What is being written cannot make room: with a small queue it has to be little.
    batch = Math.max(1, Math.min(BATCH, capacity / 8));
    held = new Holdings(capacity, Math.max(BATCH, 4 * Math.min(capacity, 1 << 20)), mostBytes);
  }

  /** The same as {@link #offer(Record, boolean)} for a record that nobody waits for. */
  long offer(Record record) {
    return offer(record, false);
  }

  /**
   * Takes the record in without ever waiting.
   *
   * @param awaited whether the caller will wait for the answer: then it is sent at once
   * @return its sequence number, or 0 where it was not taken
   */
  long offer(Record record, boolean awaited) {
    lock.lock();
    try {
      if (finishing) {
        // Behind the end of the application Spark still tells what ends with it, and so does a JVM that goes down:
        // nobody has lost anything, and no other sidecar is to be started for it.
        return 0;
      }
      record.assign(++lastSeq);
      if (closed || !held.hasRoomFor(record)) {
        held.drop(record);
        return 0;
      }
      if (awaited && isWayClear() && send(record)) {
        return record.seq();
      }
      held.pending.addLast(record);
      bell.ring(awaited);
      return record.seq();
    } finally {
      lock.unlock();
    }
  }

  /**
   * Whether the caller's thread may write by itself, which saves it the wait for another one. It must never block: so
   * only when the writer does nothing, nothing is before the record, and the pipe is known to be empty.
   */
  private boolean isWayClear() {
    return shortcut != null && bell.isWriterIdle() && held.pending.isEmpty() && progress.hasReadAll();
  }

  private boolean send(Record record) {
    byte[] line;
    try {
      line = record.line();
    } catch (Throwable unwritable) {
      // The writer will find that, too, and say so.
      return false;
    }
    if (line.length > Shortcut.MOST_BYTES) {
      return false;
    }
    // Before it is written: the answer may be back before this thread goes on.
    held.sent.add(record);
    held.sent.allWritten();
    progress.taken(record.seq());
    try {
      shortcut.write(line);
    } catch (IOException brokenPipe) {
      // The sidecar is gone; its successor is sent again what it had not acknowledged, this included.
      shortcut = null;
    }
    return true;
  }

  /** Something was lost elsewhere; it is told in the same way as what is lost here. */
  void countDropped(String where, String kind, long number) {
    underLock(
        () -> {
          held.drops.count(where, kind, number);
          bell.ring(true);
        });
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
      held.sent.allWritten();
      takenNanos = System.nanoTime();
      held.hasDropped = false;
      if (held.pending.isEmpty()) {
        allWritten = true;
        progress.note();
        if (!finishing && !closed) {
          bell.await(millis);
        }
      }
      bell.heard();
      tellDrops();
      while (next.size() < batch && !held.pending.isEmpty()) {
        Record record = held.send();
        progress.taken(record.seq());
        next.add(record);
        allWritten = false;
        bell.busy();
      }
    } finally {
      lock.unlock();
    }
  }

  private void tellDrops() {
    Record account = closed ? null : held.account(finishing);
    if (account != null) {
      account.assign(++lastSeq);
      held.pending.addLast(account);
    }
  }

  /**
   * For the writer, who has the time: what is in the pipe makes room before it is asked for.
   *
   * @return whether there is more to be done: a little at a time, for the listener's thread must not wait for long
   */
  boolean makeRoomAhead() {
    // At the end nothing comes that would need it.
    return locked(() -> !finishing && !closed && held.makeRoomAhead(SLICE));
  }

  /** The record cannot be sent, now or ever. */
  void giveUp(Record record) {
    underLock(() -> held.giveUp(record));
  }

  /** Whether the writer has taken nothing for so long, and records are dropped for that. */
  boolean hasStoodFor(long millis) {
    return locked(
        () -> held.hasDropped && System.nanoTime() - takenNanos >= TimeUnit.MILLISECONDS.toNanos(millis));
  }

  /** Whether there has ever been a record. */
  boolean hasBeenUsed() {
    return locked(() -> lastSeq > 0);
  }

  boolean hasPending() {
    return locked(() -> !held.pending.isEmpty());
  }

  /** Everything up to {@code seq} has reached the end of its way and may be forgotten. */
  void acknowledge(long seq) {
    boolean more = true;
    while (more) {
      lock.lock();
      try {
        if (progress.acknowledged(seq)) {
          held.sent.acknowledgedThrough(seq);
        }
        more = held.forgetThrough(seq, SLICE);
      } finally {
        lock.unlock();
      }
    }
  }

  /** Who waits for the answers up to {@code seq} need not wait for the acknowledgement. */
  void answered(long seq) {
    underLock(() -> progress.answered(seq));
  }

  /** Waits until every reporter has answered for {@code seq}; false when that was not in time. */
  boolean awaitAnswered(long seq, long millis) throws InterruptedException {
    lock.lock();
    try {
      progress.await(() -> progress.isAnswered(seq) || closed, millis);
      return progress.isAnswered(seq);
    } finally {
      lock.unlock();
    }
  }

  /** Waits until all records are in the pipe, at most {@code millis}. */
  void awaitWritten(long millis) throws InterruptedException {
    lock.lock();
    try {
      progress.await(() -> held.pending.isEmpty() && allWritten || closed, millis);
    } finally {
      lock.unlock();
    }
  }

  /** Nothing is left that a new sidecar would have to be sent. */
  boolean isAcknowledgedEntirely() {
    return locked(() -> held.size() == 0);
  }

  boolean isAnswered(long seq) {
    return locked(() -> progress.isAnswered(seq));
  }

  /** A new sidecar starts from the last acknowledgement: what was sent is to be sent again. */
  Collection<Record> rewind() {
    lock.lock();
    try {
      held.rewind();
      progress.startsAnew(lastSeq);
      return held.context.records();
    } finally {
      lock.unlock();
    }
  }

  /** Until further notice, who waits for an answer may write this way; null: nobody may. */
  void open(Shortcut way) {
    underLock(() -> shortcut = way);
  }

  /** It has happened before anybody listened: no event, but what a sidecar must know. */
  void know(Record record) {
    underLock(() -> held.context.apply(record));
  }

  /** No record is taken any more; the writer is woken to say so. */
  void finish() {
    underLock(
        () -> {
          finishing = true;
          bell.wake();
        });
  }

  boolean isFinished() {
    return locked(() -> finishing && held.pending.isEmpty());
  }

  boolean isClosed() {
    return locked(() -> closed);
  }

  /** The writer looks up, now or, if it is busy, when it would wait next. */
  void wakeWriter() {
    underLock(bell::wake);
  }

  /** There is no sidecar and there will be none: whoever waits goes on, whatever is held is dropped. */
  void close() {
    lock.lock();
    try {
      closed = true;
      unconfirmed += held.close();
      progress.note();
      bell.wake();
    } finally {
      lock.unlock();
    }
  }

  /** How many records it holds. */
  int size() {
    return locked(held::size);
  }

  int capacity() {
    return held.capacity;
  }

  /** How many records were dropped, by all that is known. */
  long dropped() {
    return locked(held.drops::total);
  }

  /** After {@link #close}: how many records the sidecar had been given, of which it has not said what became. */
  long unconfirmed() {
    return locked(() -> unconfirmed);
  }

  /** What was told as a record since this was asked last, or null. */
  String takeDropNotice() {
    return held.drops.takeNotice();
  }

  /** What was dropped and never told as a record; empty where there is nothing. */
  String untoldDrops() {
    return locked(held.drops::unreported);
  }

  private void underLock(Runnable change) {
    lock.lock();
    try {
      change.run();
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
