package io.sparkevents.queue;

import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;

/**
 * Bounded queue of the records that wait to be written and of the records in flight. Used under the {@link
 * HandoffQueue}'s lock.
 *
 * <pre>
 *  add -> [ waiting: routine | lifecycle ] -> take -> [ in flight ] -> acknowledge -> {@link RestoreState}
 *         | full, nothing written                | full
 *         v                                      v
 *      dropped and counted                    evicted: only the sidecar still has the record
 * </pre>
 *
 * <p>Two deques hold the waiting records by priority, so that a full queue finds the record to drop without a search.
 * An evicted record is lost, and counted, if its sidecar dies before the acknowledgement.
 */
final class RecordQueue {
  /** Record that was evicted before its acknowledgement. */
  private static final class Evicted {
    final long seq;
    final String kind;
    /** Null for an ordinary record. */
    final DropCounters.Account account;

    Evicted(Record record) {
      seq = record.seq();
      kind = record.kind;
      account = record instanceof DropCounters.Account ? (DropCounters.Account) record : null;
    }
  }

  /** Records evicted for memory under one hold of the lock, because the listener thread waits for it. */
  private static final int SLICE = 32;
  private static final int LEAST_EVICTED = 64;
  private static final int MOST_EVICTED = 1 << 22;

  final int capacity;
  final RestoreState context = new RestoreState();
  final DropCounters drops = new DropCounters();

  private final long mostBytes;
  private final int mostEvicted;

  private final ArrayDeque<Record> routine = new ArrayDeque<>();
  private final ArrayDeque<Record> lifecycle = new ArrayDeque<>();
  private long waitingBytes;

  private final ArrayDeque<Record> inFlight = new ArrayDeque<>();
  /** Records up to this number are in the pipe; newer ones in flight are being written. */
  private long writtenThrough;
  /** Bytes of the records in flight that are in the pipe. */
  private long writtenBytes;
  private long ackedThrough;

  private final ArrayDeque<Evicted> evicted = new ArrayDeque<>();
  /** Counts by kind of the oldest evicted records, those beyond {@link #mostEvicted}. */
  private final Map<String, Long> evictedBefore = new HashMap<>();
  private long evictedBeforeThrough;

  /**
   * @param mostBytes limit for the lines in flight; waiting records may hold twice that
   */
  RecordQueue(int capacity, long mostBytes) {
    this.capacity = capacity;
    this.mostBytes = mostBytes;
    mostEvicted = Math.max(LEAST_EVICTED, (int) Math.min(MOST_EVICTED, 4L * capacity));
  }

  int size() {
    return routine.size() + lifecycle.size() + inFlight.size();
  }

  boolean isWaitingEmpty() {
    return routine.isEmpty() && lifecycle.isEmpty();
  }

  /** Returns the number of the newest record in flight, or 0. */
  long newestInFlight() {
    return inFlight.isEmpty() ? 0 : inFlight.peekLast().seq();
  }

  /** Appends a record; if there is no room, drops it and returns false. */
  boolean add(Record record) {
    boolean hasRoom = size() < capacity || evict() || dropLowest(record.priority);
    while (hasRoom && record.size() > 0 && !isWaitingEmpty() && waitingBytes + record.size() > 2 * mostBytes) {
      hasRoom = dropLowest(record.priority);
    }
    if (hasRoom) {
      addWaiting(record);
    } else {
      drop(record);
    }
    return hasRoom;
  }

  private void addWaiting(Record record) {
    waitingBytes += record.size();
    (record.priority == Priority.ROUTINE ? routine : lifecycle).addLast(record);
  }

  /** Drops the oldest waiting record of the lowest priority up to {@code most}; returns false if there is none. */
  private boolean dropLowest(Priority most) {
    Record lowest = routine.pollFirst();
    if (lowest == null && most != Priority.ROUTINE) {
      Iterator<Record> oldestFirst = lifecycle.iterator();
      while (lowest == null && oldestFirst.hasNext()) {
        Record record = oldestFirst.next();
        if (record.priority != Priority.ACCOUNT) {
          oldestFirst.remove();
          lowest = record;
        }
      }
    }
    if (lowest == null) {
      return false;
    }
    waitingBytes -= lowest.size();
    drop(lowest);
    return true;
  }

  /** Counts a lost record. Its change still applies to the restore state: a query that started still runs. */
  void drop(Record record) {
    if (record.priority != Priority.ACCOUNT) {
      drops.count(DropCounters.HANDOFF, record.kind, 1);
    }
    context.apply(record);
  }

  /** Adds an account of the drops with the number {@code seq}, if one is due and there is room. */
  boolean addAccount(boolean last, long seq) {
    long now = System.nanoTime();
    if (!drops.isDue(now, last && isWaitingEmpty()) || (size() >= capacity && !evict())) {
      return false;
    }
    Record account = drops.account(now);
    account.assign(seq);
    addWaiting(account);
    return true;
  }

  /** Moves the oldest waiting record in flight and returns it; null if none waits. */
  Record take() {
    Record first = routine.peekFirst();
    Record other = lifecycle.peekFirst();
    boolean takesRoutine = other == null || (first != null && first.seq() < other.seq());
    Record record = takesRoutine ? routine.pollFirst() : lifecycle.pollFirst();
    if (record != null) {
      waitingBytes -= record.size();
      if (record.priority == Priority.ACCOUNT) {
        drops.accountLeft();
      }
      inFlight.addLast(record);
    }
    return record;
  }

  /** Marks all records taken so far as in the pipe. */
  void written() {
    long before = writtenThrough;
    Iterator<Record> newestFirst = inFlight.descendingIterator();
    while (newestFirst.hasNext()) {
      Record record = newestFirst.next();
      if (record.seq() <= before) {
        break;
      }
      writtenThrough = Math.max(writtenThrough, record.seq());
      writtenBytes += record.size();
    }
    for (int done = 0; done < SLICE && writtenBytes > mostBytes && evict(); done++) {
      continue;
    }
  }

  private Record pollInFlight() {
    Record oldest = inFlight.pollFirst();
    if (oldest.seq() <= writtenThrough) {
      writtenBytes -= oldest.size();
    }
    context.apply(oldest);
    return oldest;
  }

  /** Evicts the oldest record that is in the pipe; returns false if there is none. */
  private boolean evict() {
    Record oldest = inFlight.peekFirst();
    if (oldest == null || oldest.seq() > writtenThrough) {
      return false;
    }
    pollInFlight();
    if (oldest.seq() > ackedThrough) {
      if (evicted.size() == mostEvicted) {
        mergeOldestEvicted();
      }
      evicted.addLast(new Evicted(oldest));
    }
    return true;
  }

  private void mergeOldestEvicted() {
    Evicted oldest = evicted.pollFirst();
    if (oldest.account == null) {
      evictedBefore.merge(oldest.kind, 1L, Long::sum);
      evictedBeforeThrough = oldest.seq;
    } else {
      // Reported twice rather than lost.
      drops.takeBack(oldest.account);
    }
  }

  /** Removes up to {@code most} records with numbers up to {@code seq}; returns whether more are left. */
  boolean acknowledge(long seq, int most) {
    ackedThrough = Math.max(ackedThrough, seq);
    while (!evicted.isEmpty() && evicted.peekFirst().seq <= seq) {
      evicted.pollFirst();
    }
    if (evictedBeforeThrough <= seq) {
      evictedBefore.clear();
    }
    int left = most;
    while (!inFlight.isEmpty() && inFlight.peekFirst().seq() <= seq && left-- > 0) {
      pollInFlight();
    }
    return left < 0;
  }

  /** Requeues the records in flight after the sidecar has died, and counts the evicted ones as lost. */
  void rewind() {
    for (Record record = inFlight.pollLast(); record != null; record = inFlight.pollLast()) {
      waitingBytes += record.size();
      (record.priority == Priority.ROUTINE ? routine : lifecycle).addFirst(record);
    }
    writtenThrough = 0;
    writtenBytes = 0;
    evictedBefore.forEach((kind, number) -> drops.count(DropCounters.SIDECAR, kind, number));
    evictedBefore.clear();
    for (Evicted lost = evicted.pollFirst(); lost != null; lost = evicted.pollFirst()) {
      if (lost.account == null) {
        drops.count(DropCounters.SIDECAR, lost.kind, 1);
      } else {
        drops.takeBack(lost.account);
      }
    }
  }

  /** Drops the waiting records when no sidecar is left; returns the number of records in flight, which may be lost. */
  long close() {
    for (Record record = take(); record != null; record = take()) {
      inFlight.pollLast();
      if (record instanceof DropCounters.Account) {
        drops.takeBack((DropCounters.Account) record);
      } else {
        drop(record);
      }
    }
    long unconfirmed = inFlight.size();
    for (long number : evictedBefore.values()) {
      unconfirmed += number;
    }
    for (Evicted one : evicted) {
      if (one.account == null) {
        unconfirmed++;
      } else {
        drops.takeBack(one.account);
      }
    }
    inFlight.clear();
    evicted.clear();
    evictedBefore.clear();
    return unconfirmed;
  }
}
