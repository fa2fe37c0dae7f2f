package io.sparkevents.queue;

import java.util.Collection;
import java.util.List;

/**
 * Bounded queue between Spark's listener thread and the writer thread.
 *
 * <pre>
 *  offer -> [ {@link Waiting} ] -> take -> [ {@link InFlight} ] -> acknowledge -> {@link RestoreState}
 *           | full, nothing written        | full
 *           v                              v
 *        dropped and counted            {@link EvictedRecords}: only the sidecar still has the record
 * </pre>
 *
 * <p>An offer never waits. The queue keeps each record until the sidecar has acknowledged it. If the sidecar dies, the
 * records that are still in the queue are not lost.
 */
public final class RecordQueue {
  /** Records that were lost, here and elsewhere. */
  public final DropCounters drops;
  public final ReadProgress progress;
  public final QueueUsage usage;
  public final WriterSignal writer = new WriterSignal(this);
  public final int capacity;

  private final QueueConfig config;
  private final RestoreState restoreState = new RestoreState();
  private final Waiting waiting;
  private final InFlight inFlight;
  private boolean finishing;
  private boolean closed;
  private long lastSeq;

  public RecordQueue(QueueConfig config) {
    this.config = config;
    capacity = config.capacity;
    drops = new DropCounters(this, writer);
    progress = new ReadProgress(this, config.clock);
    waiting = new Waiting(config.bytesWaiting);
    inFlight = new InFlight(config.bytesInFlight, restoreState, new EvictedRecords(capacity, drops));
    usage = new QueueUsage(this, config, waiting, inFlight);
  }

  /**
   * Adds a record without waiting.
   *
   * @return the record's seq, or 0 if the record was not accepted
   */
  public synchronized long offer(Record record) {
    if (finishing) {
      // Not a loss: after the application has ended, records only describe work that Spark stops, or the JVM's exit.
      return 0;
    }
    record.assign(++lastSeq);
    if (closed || !makeRoomFor(record)) {
      drop(record);
      return 0;
    }
    add(record);
    return record.seq();
  }

  private void add(Record record) {
    waiting.addLast(record);
    usage.recordAdded();
    progress.added(record.seq());
    writer.recordAdded();
  }

  /** Evicts or drops records if necessary; returns false if there is still no space for the record. */
  private boolean makeRoomFor(Record record) {
    boolean hasRoom =
        !waiting.isTooLarge(record)
            && (size() < capacity || inFlight.evict() || drop(waiting.pollLowest(record.priority)));
    while (hasRoom && waiting.exceedsLimitWith(record)) {
      hasRoom = drop(waiting.pollLowest(record.priority));
    }
    return hasRoom;
  }

  /**
   * Counts a lost record; returns false if there is none. The record still changes the restore state: for example, its
   * query is running despite the loss.
   */
  private boolean drop(Record record) {
    if (record == null) {
      return false;
    }
    if (record instanceof DropCounters.Account) {
      drops.takeBack((DropCounters.Account) record);
    } else {
      drops.add(DropCounters.HANDOFF, record.kind, 1);
    }
    restoreState.apply(record);
    return true;
  }

  /** Adds a record only to the restore state; the fact is older than the listener and causes no event. */
  public synchronized void know(Record record) {
    restoreState.apply(record);
  }

  /** Enqueues reports of all unreported drops, as far as the queue has space. */
  public synchronized void reportDrops() {
    drops.reportNow();
    while (!finishing && addAccount(false)) {
      // Each account reports the drops at one place.
    }
    writer.wake();
  }

  /** If an account of the drops is due and fits, enqueues it. */
  private boolean addAccount(boolean last) {
    boolean isDue = !closed && drops.isDue(last && waiting.isEmpty());
    if (!isDue || (size() >= capacity && !inFlight.evict())) {
      return false;
    }
    Record account = drops.account();
    account.assign(++lastSeq);
    add(account);
    return true;
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
    if (inFlight.writing() > 0) {
      written();
    }
    if (waiting.isEmpty()) {
      notifyAll(); // for awaitWritten
      writer.awaitWork(() -> finishing || closed || !waiting.isEmpty(), millis);
    }
    writer.clear();
    addAccount(finishing);
    while (next.size() < config.batch && !waiting.isEmpty()) {
      Record oldest = waiting.poll();
      inFlight.add(oldest);
      next.add(oldest);
      writer.wasBusy();
    }
  }

  /**
   * Marks all records taken so far as written. Evicts records of a nearly full queue here, on the writer thread: on the
   * listener thread, an eviction would take four times as long as an offer.
   */
  private void written() {
    inFlight.written();
    boolean makesRoom = true;
    while (makesRoom && (inFlight.exceedsLimit() || size() > config.evictAbove)) {
      makesRoom = inFlight.evict();
    }
  }

  /**
   * Drops and counts a taken record whose line cannot be created. The next account follows at once, because a thread
   * may wait for the answer to a seq that is not lower than the record's.
   */
  public synchronized void dropUnwritable(Record record) {
    if (inFlight.remove(record)) {
      restoreState.apply(record);
      progress.removed(record.seq(), inFlight.newestSeq());
    }
    drops.reportNow();
    drops.count(DropCounters.UNWRITABLE, record.kind, 1);
  }

  /** Removes all records up to {@code seq}, because the sidecar has delivered, spooled or counted their events. */
  public void acknowledge(long seq) {
    progress.read(seq);
    boolean more;
    do {
      synchronized (this) {
        more = inFlight.acknowledge(seq);
      }
    } while (more);
  }

  /** Makes the records in flight wait again for a new sidecar; returns the restore state to send first. */
  public synchronized Collection<Record> rewind() {
    inFlight.returnTo(waiting);
    progress.restarted(inFlight.ackedSeq(), size() > 0);
    return restoreState.records();
  }

  /** Waits up to {@code millis} until all records are in the pipe. */
  public synchronized void awaitWritten(long millis) throws InterruptedException {
    writer.await(() -> closed || (waiting.isEmpty() && inFlight.writing() == 0), millis);
  }

  /** Whether records wait to be taken. */
  public synchronized boolean hasPending() {
    return !waiting.isEmpty();
  }

  /** Whether a record has ever been offered. */
  public synchronized boolean hasBeenUsed() {
    return lastSeq > 0;
  }

  /** Returns the number of records, waiting and in flight. */
  public synchronized int size() {
    return waiting.size() + inFlight.size();
  }

  /** Stops accepting records, and wakes the writer. */
  public synchronized void finish() {
    finishing = true;
    writer.wake();
  }

  /** Whether all records have been taken and the queue accepts no more records. */
  public synchronized boolean isFinished() {
    return finishing && waiting.isEmpty();
  }

  public synchronized boolean isClosed() {
    return closed;
  }

  /** Closes the queue after the last sidecar: releases waiting threads and drops all records. */
  public synchronized void close() {
    closed = true;
    drops.addUnconfirmed(inFlight.close());
    while (drop(waiting.poll())) {
      // The counts of dropped accounts become unreported again.
    }
    writer.wake();
  }
}
