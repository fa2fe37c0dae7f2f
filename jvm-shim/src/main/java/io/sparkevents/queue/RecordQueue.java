package io.sparkevents.queue;

import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.Map;

/**
 * Bounded queue of the records that wait to be written and of the records in flight. Used under the {@link
 * HandoffQueue}'s lock.
 *
 * <pre>
 *  add -> [ waiting: routine | lifecycle ] -> take -> [ writing ] -> [ written ] -> acknowledge -> {@link RestoreState}
 *         | full, nothing written                                  | full
 *         v                                                        v
 *      dropped and counted                                      evicted: only the sidecar still has the record
 * </pre>
 *
 * <p>Two deques hold the waiting records by priority, so that a full queue finds the record to drop without a search.
 * If the sidecar dies before it has acknowledged an evicted record, the record is lost and counted.
 */
final class RecordQueue {
  /** Record that was evicted before the sidecar acknowledged it. */
  private static final class Evicted {
    final long seq;
    final String kind;
    /** Account of dropped records; null for an ordinary record. */
    final DropCounters.Account account;

    Evicted(Record record) {
      seq = record.seq();
      kind = record.kind;
      account = record instanceof DropCounters.Account ? (DropCounters.Account) record : null;
    }
  }

  /**
   * Maximum number of records to remove per acquisition of the lock, because the listener thread may be waiting for it.
   */
  private static final int SLICE = 32;
  /** The part of the capacity that stays free for new records, as its reciprocal. */
  private static final int RESERVE = 8;
  private static final int LEAST_EVICTED = 64;
  private static final int MOST_EVICTED = 1 << 22;

  final int capacity;
  final RestoreState context = new RestoreState();
  final DropCounters drops = new DropCounters();

  private final long mostBytes;
  private final ArrayDeque<Record> routine = new ArrayDeque<>();
  private final ArrayDeque<Record> lifecycle = new ArrayDeque<>();
  private long waitingBytes;
  private final ArrayDeque<Record> writing = new ArrayDeque<>();
  private final ArrayDeque<Record> written = new ArrayDeque<>();
  private long writtenBytes;
  private long ackedThrough;

  private final ArrayDeque<Evicted> evicted = new ArrayDeque<>();
  private final int mostEvicted;
  /** Counts by kind of the oldest evicted records, which exceeded {@link #mostEvicted}. */
  private final Map<String, Long> evictedBefore = new HashMap<>();
  private long evictedBeforeThrough;

  /**
   * @param mostBytes limit for the written records, in bytes; the limit for waiting records is twice that
   */
  RecordQueue(int capacity, long mostBytes) {
    this.capacity = capacity;
    this.mostBytes = mostBytes;
    mostEvicted = Math.max(LEAST_EVICTED, (int) Math.min(MOST_EVICTED, 4L * capacity));
  }

  int size() {
    return routine.size() + lifecycle.size() + writing.size() + written.size();
  }

  /** Whether so little space is left that a burst would drop records. */
  boolean isNearlyFull() {
    return 10L * (size() - written.size()) >= 9L * capacity;
  }

  boolean isWaitingEmpty() {
    return routine.isEmpty() && lifecycle.isEmpty();
  }

  /** Whether all records are in the pipe. */
  boolean isAllWritten() {
    return isWaitingEmpty() && writing.isEmpty();
  }

  /** Returns the number of the newest record in flight, or 0. */
  long newestInFlight() {
    Record newest = writing.isEmpty() ? written.peekLast() : writing.peekLast();
    return newest == null ? 0 : newest.seq();
  }

  /** Appends a record; if there is no space, drops the record and returns false. */
  boolean add(Record record) {
    // A record that exceeds the limit alone must not displace other records, such as failures.
    boolean hasRoom =
        record.size() <= 2 * mostBytes && (size() < capacity || evict() || dropLowest(record.priority));
    while (hasRoom && record.size() > 0 && !isWaitingEmpty() && waitingBytes + record.size() > 2 * mostBytes) {
      hasRoom = dropLowest(record.priority);
    }
    if (hasRoom) {
      waitingOf(record).addLast(record);
      waitingBytes += record.size();
    } else {
      drop(record);
    }
    return hasRoom;
  }

  private ArrayDeque<Record> waitingOf(Record record) {
    return record.priority == Record.Priority.ROUTINE ? routine : lifecycle;
  }

  /**
   * Drops the oldest waiting record whose priority is at most {@code most}, the lowest first; returns false if there is
   * none.
   */
  private boolean dropLowest(Record.Priority most) {
    Record lowest = routine.peekFirst();
    if (lowest == null && most != Record.Priority.ROUTINE) {
      lowest = lifecycle.stream().filter(record -> record.priority != Record.Priority.ACCOUNT).findFirst().orElse(null);
    }
    if (lowest == null) {
      return false;
    }
    waitingOf(lowest).remove(lowest);
    waitingBytes -= lowest.size();
    drop(lowest);
    return true;
  }

  /**
   * Counts a lost record. The record still changes the restore state: for example, its query is running despite the
   * loss.
   */
  void drop(Record record) {
    if (record instanceof DropCounters.Account) {
      drops.takeBack((DropCounters.Account) record);
    } else {
      drops.count(DropCounters.HANDOFF, record.kind, 1);
    }
    context.apply(record);
  }

  /** If an account of the drops is due and fits, adds it with the number {@code seq}. */
  boolean addAccount(boolean last, long seq) {
    if (!drops.isDue(last && isWaitingEmpty()) || (size() >= capacity && !evict())) {
      return false;
    }
    Record account = drops.account();
    account.assign(seq);
    lifecycle.addLast(account);
    return true;
  }

  /** Moves the oldest waiting record to the records in flight and returns it; null if none waits. */
  Record take() {
    Record first = routine.peekFirst();
    Record other = lifecycle.peekFirst();
    boolean takesRoutine = other == null || (first != null && first.seq() < other.seq());
    Record record = takesRoutine ? routine.pollFirst() : lifecycle.pollFirst();
    if (record != null) {
      waitingBytes -= record.size();
      writing.addLast(record);
    }
    return record;
  }

  /**
   * Marks all records taken so far as written to the pipe. Evicts records of a nearly full queue here, on the writer
   * thread: on the listener thread, an eviction would take four times as long as an offer.
   */
  void written() {
    writing.forEach(record -> writtenBytes += record.size());
    written.addAll(writing);
    writing.clear();
    boolean makesRoom = true;
    while (makesRoom && (writtenBytes > mostBytes || size() > capacity - capacity / RESERVE)) {
      makesRoom = evict();
    }
  }

  /** Removes a taken record that cannot be written. It still affects the restore state, as in {@link #drop}. */
  void forget(Record record) {
    if (writing.remove(record)) {
      context.apply(record);
    }
  }

  /** Evicts the oldest record that is written to the pipe; returns false if there is none. */
  private boolean evict() {
    if (written.isEmpty()) {
      return false;
    }
    Record oldest = pollWritten();
    if (oldest.seq() > ackedThrough) {
      if (evicted.size() == mostEvicted) {
        mergeOldestEvicted();
      }
      evicted.addLast(new Evicted(oldest));
    }
    return true;
  }

  private Record pollWritten() {
    Record oldest = written.pollFirst();
    writtenBytes -= oldest.size();
    context.apply(oldest);
    return oldest;
  }

  private void mergeOldestEvicted() {
    Evicted oldest = evicted.pollFirst();
    if (oldest.account == null) {
      evictedBefore.merge(oldest.kind, 1L, Long::sum);
      evictedBeforeThrough = oldest.seq;
    } else {
      // It is better to report an event twice than to lose it.
      drops.takeBack(oldest.account);
    }
  }

  long ackedThrough() {
    return ackedThrough;
  }

  /** Removes some of the records up to {@code seq}; returns whether more such records may remain. */
  boolean acknowledge(long seq) {
    ackedThrough = Math.max(ackedThrough, seq);
    while (!evicted.isEmpty() && evicted.peekFirst().seq <= seq) {
      evicted.pollFirst();
    }
    if (evictedBeforeThrough <= seq) {
      evictedBefore.clear();
    }
    for (int left = SLICE; left > 0; left--) {
      if (!written.isEmpty() && written.peekFirst().seq() <= seq) {
        pollWritten();
      } else if (written.isEmpty() && !writing.isEmpty() && writing.peekFirst().seq() <= seq) {
        context.apply(writing.pollFirst());
      } else {
        return false;
      }
    }
    return true;
  }

  /** Requeues the records in flight after the sidecar has died; counts the evicted records as lost. */
  void rewind() {
    written.addAll(writing);
    writing.clear();
    for (Record record = written.pollLast(); record != null; record = written.pollLast()) {
      waitingBytes += record.size();
      waitingOf(record).addFirst(record);
    }
    writtenBytes = 0;
    evictedBefore.forEach((kind, number) -> drops.count(DropCounters.SIDECAR, kind, number));
    evicted.stream().filter(lost -> lost.account == null).forEach(lost -> drops.count(DropCounters.SIDECAR, lost.kind, 1));
    takeBackEvicted();
  }

  /** Forgets the evicted records; the counts in evicted accounts become unreported again. */
  private void takeBackEvicted() {
    evicted.stream().filter(lost -> lost.account != null).forEach(lost -> drops.takeBack(lost.account));
    evicted.clear();
    evictedBefore.clear();
  }

  /** Drops the waiting records after the last sidecar; returns the number of records in flight, which may be lost. */
  long close() {
    long unconfirmed = writing.size() + written.size();
    unconfirmed += evicted.stream().filter(one -> one.account == null).count();
    unconfirmed += evictedBefore.values().stream().mapToLong(Long::longValue).sum();
    writing.clear();
    written.clear();
    takeBackEvicted();
    for (Record record = take(); record != null; record = take()) {
      drop(record);
    }
    writing.clear();
    return unconfirmed;
  }
}
