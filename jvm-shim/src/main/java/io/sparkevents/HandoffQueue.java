package io.sparkevents;

import java.util.ArrayDeque;
import java.util.Collection;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Between Spark's listener thread and the writer: bounded, and it keeps every record until the
 * sidecar has acknowledged it, so that a sidecar that dies costs nothing.
 *
 * <p>It never holds more than its capacity. When it is full, a record that the sidecar has already
 * been given makes room first (it lives on in the sidecar); only when the sidecar does not even read
 * is a record dropped, the least worthy and oldest first, and counted.
 */
final class HandoffQueue {
  private final ReentrantLock lock = new ReentrantLock();
  private final Condition changed = lock.newCondition();
  private final Condition acknowledged = lock.newCondition();
  private final int capacity;
  private final ArrayDeque<Record> pending = new ArrayDeque<>();
  private final ArrayDeque<Record> sent = new ArrayDeque<>();
  private final Context context = new Context();
  private final Map<String, Long> unreportedDrops = new LinkedHashMap<>();

  private boolean writerWaits;
  private boolean finishing;
  private boolean closed;
  private long lastSeq;
  private long ackedThrough;
  private long dropped;

  HandoffQueue(int capacity) {
    this.capacity = capacity;
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
      if (closed) {
        drop(record);
        return 0;
      }
      if (pending.size() + sent.size() >= capacity && !makeRoomFor(record)) {
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

  private boolean makeRoomFor(Record record) {
    if (!sent.isEmpty()) {
      context.apply(sent.pollFirst());
      return true;
    }
    Iterator<Record> oldestFirst = pending.iterator();
    while (oldestFirst.hasNext()) {
      Record candidate = oldestFirst.next();
      if (candidate.worth == Record.Worth.ROUTINE) {
        oldestFirst.remove();
        drop(candidate);
        return true;
      }
    }
    if (record.worth == Record.Worth.ROUTINE) {
      drop(record);
      return false;
    }
    drop(pending.pollFirst());
    return true;
  }

  private void drop(Record record) {
    dropped++;
    unreportedDrops.merge(record.kind, 1L, Long::sum);
    // The record is lost as an event, not as knowledge: a query that started still runs.
    context.apply(record);
  }

  /**
   * Waits until a record is there, at most {@code millis}.
   *
   * @return the next record to be sent, or null
   */
  Record take(long millis) throws InterruptedException {
    lock.lock();
    try {
      if (pending.isEmpty() && !finishing && !closed) {
        writerWaits = true;
        try {
          changed.await(millis, TimeUnit.MILLISECONDS);
        } finally {
          writerWaits = false;
        }
      }
      Record record = pending.pollFirst();
      if (record != null) {
        sent.addLast(record);
      }
      return record;
    } finally {
      lock.unlock();
    }
  }

  boolean hasPending() {
    lock.lock();
    try {
      return !pending.isEmpty();
    } finally {
      lock.unlock();
    }
  }

  /** The drops that nobody has been told of yet, by kind; they count as told from now on. */
  Map<String, Long> takeDrops() {
    lock.lock();
    try {
      Map<String, Long> drops = new LinkedHashMap<>(unreportedDrops);
      unreportedDrops.clear();
      return drops;
    } finally {
      lock.unlock();
    }
  }

  /** Everything up to {@code seq} has reached the end of its way and may be forgotten. */
  void acknowledge(long seq) {
    lock.lock();
    try {
      while (!sent.isEmpty() && sent.peekFirst().seq() <= seq) {
        context.apply(sent.pollFirst());
      }
      ackedThrough = Math.max(ackedThrough, seq);
      acknowledged.signalAll();
    } finally {
      lock.unlock();
    }
  }

  /** Waits for the acknowledgement of {@code seq}; false when it did not come in time. */
  boolean awaitAcknowledged(long seq, long millis) throws InterruptedException {
    lock.lock();
    try {
      long left = TimeUnit.MILLISECONDS.toNanos(millis);
      while (ackedThrough < seq && !closed) {
        if (left <= 0) {
          return false;
        }
        left = acknowledged.awaitNanos(left);
      }
      return ackedThrough >= seq;
    } finally {
      lock.unlock();
    }
  }

  /** Nothing is left that a new sidecar would have to be sent. */
  boolean isAcknowledgedEntirely() {
    lock.lock();
    try {
      return pending.isEmpty() && sent.isEmpty();
    } finally {
      lock.unlock();
    }
  }

  boolean isAcknowledged(long seq) {
    lock.lock();
    try {
      return ackedThrough >= seq;
    } finally {
      lock.unlock();
    }
  }

  /** A new sidecar starts from the last acknowledgement: what was sent is to be sent again. */
  Collection<Record> rewind() {
    lock.lock();
    try {
      while (!sent.isEmpty()) {
        pending.addFirst(sent.pollLast());
      }
      return context.records();
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
    lock.lock();
    try {
      return finishing && pending.isEmpty();
    } finally {
      lock.unlock();
    }
  }

  boolean isClosed() {
    lock.lock();
    try {
      return closed;
    } finally {
      lock.unlock();
    }
  }

  void wakeWriter() {
    lock.lock();
    try {
      changed.signalAll();
    } finally {
      lock.unlock();
    }
  }

  /**
   * There is no sidecar and there will be none: whoever waits goes on, whatever is held is dropped.
   *
   * @return how many records have been dropped so far
   */
  long close() {
    lock.lock();
    try {
      closed = true;
      for (Record record : pending) {
        drop(record);
      }
      pending.clear();
      sent.clear();
      acknowledged.signalAll();
      changed.signalAll();
      return dropped;
    } finally {
      lock.unlock();
    }
  }
}
