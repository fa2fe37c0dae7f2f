package io.sparkevents.queue;

import java.util.ArrayDeque;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.function.LongSupplier;

/**
 * Bounded queue between Spark's listener thread and the writer thread.
 *
 * <pre>
 *  offer -> [ waiting: routine | lifecycle ] -> take -> [ writing ] -> [ sent ] -> acknowledge -> {@link RestoreState}
 *           | full, nothing sent                                       | full
 *           v                                                          v
 *        dropped and counted                                        evicted: only the sidecar still has the record
 * </pre>
 *
 * <p>An offer never waits. The queue keeps each record until the sidecar has acknowledged it. If the sidecar dies, the
 * records that are still in the queue are not lost. Two deques hold the waiting records by priority, so that a full
 * queue finds the record to drop without a search.
 *
 * <p>Waking a thread takes the listener longer than all other work of a callback. Therefore a busy writer polls for a
 * while before it sleeps. While it polls, the listener does not wake it, unless a thread waits for the answer.
 */
public final class RecordQueue {
  private static final int BATCH = 64;
  /**
   * The driver's heap divided by this number is the limit for the bytes in flight; the limit for waiting records is
   * twice that.
   */
  private static final int SHARE = 16;
  /** The part of the capacity that stays free for new records, as its reciprocal. */
  private static final int RESERVE = 8;
  private static final long POLL_MILLIS = 2;
  private static final int POLLS = 3;

  public final int capacity;
  private final long mostBytes;
  private final LongSupplier clock;
  private final int batch;
  private final RestoreState restoreState = new RestoreState();
  private final DropCounters drops = new DropCounters();
  private final ArrayDeque<Record> routine = new ArrayDeque<>();
  private final ArrayDeque<Record> lifecycle = new ArrayDeque<>();
  private long waitingBytes;
  private final ArrayDeque<Record> writing = new ArrayDeque<>();
  private final SentRecords sent;

  private boolean finishing;
  private boolean closed;
  /** Remaining number of polls before the writer sleeps. */
  private int pollsLeft;
  private boolean asleep;
  /** Whether a thread woke the writer while the writer was busy; if so, the writer skips its next wait. */
  private boolean woken;
  private volatile boolean wasNearlyFull;
  private long lastSeq;
  /** Number of the newest record that the current sidecar has read. */
  private long readThrough;
  /** Time of the sidecar's last read, or of the first unread record if that time is later. */
  private long unreadSinceNanos;
  private long unconfirmed;

  public RecordQueue(int capacity) {
    this(capacity, Runtime.getRuntime().maxMemory() / SHARE);
  }

  public RecordQueue(int capacity, long mostBytes) {
    this(capacity, mostBytes, System::nanoTime);
  }

  /**
   * @param mostBytes limit for the sent records, in bytes; the limit for waiting records is twice that
   * @param clock monotonic time for the stall check, in nanoseconds
   */
  public RecordQueue(int capacity, long mostBytes, LongSupplier clock) {
    this.capacity = capacity;
    this.mostBytes = mostBytes;
    this.clock = clock;
    // A record cannot be evicted while it is being written, so a small queue needs small batches.
    batch = Math.max(1, Math.min(BATCH, capacity / 8));
    sent = new SentRecords(capacity, restoreState, drops);
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
    if (closed || !makeRoomFor(record)) {
      drop(record);
      return 0;
    }
    waitingOf(record).addLast(record);
    waitingBytes += record.size();
    if (!wasNearlyFull && 10L * (waiting() + writing.size()) >= 9L * capacity) {
      wasNearlyFull = true;
    }
    unreadSinceNanos = wasIdle ? clock.getAsLong() : unreadSinceNanos;
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
    if (waiting() > 0) {
      return true;
    }
    Record newest = writing.isEmpty() ? sent.records.peekLast() : writing.peekLast();
    return newest != null && newest.seq() > readThrough;
  }

  private ArrayDeque<Record> waitingOf(Record record) {
    return record.priority == Record.Priority.ROUTINE ? routine : lifecycle;
  }

  /** Evicts or drops records if necessary; returns false if there is still no space for the record. */
  private boolean makeRoomFor(Record record) {
    // A record that exceeds the limit alone must not displace other records, such as failures.
    boolean hasRoom =
        record.size() <= 2 * mostBytes && (held() < capacity || sent.evict() || dropLowest(record.priority));
    while (hasRoom && record.size() > 0 && waiting() > 0 && waitingBytes + record.size() > 2 * mostBytes) {
      hasRoom = dropLowest(record.priority);
    }
    return hasRoom;
  }

  /**
   * Drops the oldest waiting record whose priority is at most {@code most}, the lowest first; returns false if there is
   * none.
   */
  private boolean dropLowest(Record.Priority most) {
    Record lowest = routine.pollFirst();
    if (lowest == null && most != Record.Priority.ROUTINE) {
      lowest = lifecycle.stream().filter(record -> record.priority != Record.Priority.ACCOUNT).findFirst().orElse(null);
      lifecycle.remove(lowest);
    }
    if (lowest == null) {
      return false;
    }
    waitingBytes -= lowest.size();
    drop(lowest);
    return true;
  }

  /**
   * Counts a lost record. The record still changes the restore state: for example, its query is running despite the
   * loss.
   */
  private void drop(Record record) {
    if (record instanceof DropCounters.Account) {
      drops.takeBack((DropCounters.Account) record);
    } else {
      drops.count(DropCounters.HANDOFF, record.kind, 1);
    }
    restoreState.apply(record);
  }

  /** Counts records that were lost outside this queue; an account reports them like the queue's own drops. */
  public synchronized void countDropped(String where, String kind, long number) {
    drops.count(where, kind, number);
    wakeWriter();
  }

  /** Enqueues reports of all unreported drops, as far as the queue has space. */
  public synchronized void reportDrops() {
    drops.reportNow();
    while (!finishing && addAccount(false)) {
      // Each account reports the drops at one place.
    }
    wakeWriter();
  }

  /** If an account of the drops is due and fits, enqueues it. */
  private boolean addAccount(boolean last) {
    boolean isDue = !closed && !drops.unreported.isEmpty() && drops.isDue(last && waiting() == 0);
    if (!isDue || (held() >= capacity && !sent.evict())) {
      return false;
    }
    Record account = drops.account();
    account.assign(++lastSeq);
    unreadSinceNanos = hasUnread() ? unreadSinceNanos : clock.getAsLong();
    lifecycle.addLast(account);
    return true;
  }

  /**
   * Drops and counts a taken record whose line cannot be created. The next account follows at once, because a thread
   * may wait for the answer to a number that is not lower than the record's.
   */
  public synchronized void dropUnwritable(Record record) {
    if (writing.remove(record)) {
      restoreState.apply(record);
    }
    drops.reportNow();
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
    if (!writing.isEmpty()) {
      written();
    }
    if (waiting() == 0) {
      notifyAll();
      asleep = pollsLeft == 0;
      long longest = asleep ? millis : Math.min(POLL_MILLIS, millis);
      await(() -> woken || finishing || closed || waiting() > 0, longest);
      asleep = false;
      pollsLeft = Math.max(0, pollsLeft - 1);
    }
    woken = false;
    addAccount(finishing);
    while (next.size() < batch && waiting() > 0) {
      next.add(takeOldest());
      pollsLeft = POLLS;
    }
  }

  /**
   * Marks all records taken so far as sent. Evicts records of a nearly full queue here, on the writer thread: on the
   * listener thread, an eviction would take four times as long as an offer.
   */
  private void written() {
    sent.addAll(writing);
    boolean makesRoom = true;
    while (makesRoom && (sent.bytes > mostBytes || held() > capacity - capacity / RESERVE)) {
      makesRoom = sent.evict();
    }
  }

  private Record takeOldest() {
    Record first = routine.peekFirst();
    Record other = lifecycle.peekFirst();
    boolean takesRoutine = other == null || (first != null && first.seq() < other.seq());
    Record oldest = takesRoutine ? first : other;
    waitingBytes -= oldest.size();
    waitingOf(oldest).pollFirst();
    writing.addLast(oldest);
    return oldest;
  }

  /** Whether a record has ever been offered. */
  public synchronized boolean hasBeenUsed() {
    return lastSeq > 0;
  }

  /** Whether records wait to be taken. */
  public synchronized boolean hasPending() {
    return waiting() > 0;
  }

  /** Removes all records up to {@code seq}, because the sidecar has delivered, spooled or counted their events. */
  public void acknowledge(long seq) {
    boolean more;
    do {
      synchronized (this) {
        read(seq);
        more = sent.acknowledge(seq, writing);
      }
    } while (more);
  }

  /** Notes that the sidecar has read the records up to {@code seq}. */
  public synchronized void read(long seq) {
    if (seq > readThrough) {
      readThrough = seq;
      unreadSinceNanos = clock.getAsLong();
    }
  }

  /** Whether the sidecar has unread records and has read none for {@code millis}. */
  public synchronized boolean hasStalledFor(long millis) {
    return hasUnread() && clock.getAsLong() - unreadSinceNanos >= TimeUnit.MILLISECONDS.toNanos(millis);
  }

  /** Waits up to {@code millis} until all records are in the pipe. */
  public synchronized void awaitWritten(long millis) throws InterruptedException {
    await(() -> writing.size() + waiting() == 0 || closed, millis);
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
    return held() == 0;
  }

  /** Requeues the records in flight for a new sidecar; returns the restore state to send first. */
  public synchronized Collection<Record> rewind() {
    sent.addAll(writing);
    for (Record record = sent.records.pollLast(); record != null; record = sent.records.pollLast()) {
      waitingBytes += record.size();
      waitingOf(record).addFirst(record);
    }
    sent.bytes = 0;
    sent.loseEvicted();
    readThrough = sent.ackedThrough;
    unreadSinceNanos = clock.getAsLong();
    return restoreState.records();
  }

  /** Adds a record only to the restore state; the fact is older than the listener and causes no event. */
  public synchronized void know(Record record) {
    restoreState.apply(record);
  }

  /** Stops accepting records, and wakes the writer. */
  public synchronized void finish() {
    finishing = true;
    wakeWriter();
  }

  /** Whether all records have been taken and the queue accepts no more records. */
  public synchronized boolean isFinished() {
    return finishing && waiting() == 0;
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
    sent.addAll(writing);
    unconfirmed += sent.close();
    while (waiting() > 0) {
      drop(takeOldest());
    }
    writing.clear();
    wakeWriter();
  }

  public synchronized int size() {
    return held();
  }

  private int held() {
    return waiting() + writing.size() + sent.records.size();
  }

  private int waiting() {
    return routine.size() + lifecycle.size();
  }

  /** Returns the number of records that are known to be lost. */
  public synchronized long dropped() {
    return drops.total;
  }

  /**
   * Returns the losses that no sidecar has reported, by kind of record; call this method after {@link #close}. {@code
   * unconfirmed} is the number of records that a sidecar received and did not acknowledge.
   */
  public synchronized Map<String, Long> unreported() {
    Map<String, Long> all = drops.unreported();
    if (unconfirmed > 0) {
      all.put("unconfirmed", unconfirmed);
    }
    return all;
  }
}
