package io.sparkevents.queue;

import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;

/**
 * Records that wait to be written, and records in flight: one bounded queue, used under the {@link HandoffQueue}'s lock.
 *
 * <pre>
 *   add -> [ waiting: routine | lifecycle ] -> take -> [ in flight ] -> acknowledge -> {@link RestoreState}
 *                  | full, nothing written                | full
 *                  v                                      v
 *           dropped and counted                    evicted: the sidecar alone still has it
 * </pre>
 *
 * <p>Waiting records lie in two deques by priority, so that a full queue finds what to drop without a search. An evicted
 * record is lost if its sidecar dies before the acknowledgement, and is counted then.
 */
final class RecordQueue {
  /** What is known of a record that was evicted before its acknowledgement. */
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

  /** So many records are evicted in one step for the sake of memory: the listener's thread waits for the lock meanwhile. */
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
  /** Records up to here are in the pipe; newer ones in flight are being written. */
  private long writtenThrough;
  /** Of the records that are in the pipe. */
  private long writtenBytes;
  private long ackedThrough;

  private final ArrayDeque<Evicted> evicted = new ArrayDeque<>();
  /** Evicted records beyond {@link #mostEvicted}, the oldest, by kind. */
  private final Map<String, Long> evictedBefore = new HashMap<>();
  private long evictedBeforeThrough;

  /**
   * @param mostBytes limit for the lines in flight; waiting records may hold twice as much
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

  /** The number of the newest record in flight, or 0. */
  long newestInFlight() {
    return inFlight.isEmpty() ? 0 : inFlight.peekLast().seq();
  }

  /** Adds a record behind the others; false: there is no room, and it was dropped. */
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

  /** DropCounters the oldest waiting record of the lowest priority, which is at most {@code most}; false: there is none. */
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

  /** Counts a record that is lost. What it says is still known: a query that started still runs. */
  void drop(Record record) {
    if (record.priority != Priority.ACCOUNT) {
      drops.count(DropCounters.HANDOFF, record.kind, 1);
    }
    context.apply(record);
  }

  /** Adds an account of what was dropped, with that number, where one is due and there is room. */
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

  /** The oldest waiting record, which is in flight from now on, or null. */
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

  /** All records taken so far are in the pipe. */
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

  /** Forgets the oldest record that is in the pipe; false: there is none. */
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
      // Reported again rather than lost.
      drops.takeBack(oldest.account);
    }
  }

  /** Nothing up to {@code seq} can be lost any more. Forgets at most {@code most} records; returns whether more are left. */
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

  /** The sidecar is gone: records in flight wait again, evicted ones are lost. */
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

  /** No sidecar will come any more: drops waiting records. Returns the number of records in flight, whose fate is unknown. */
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
