package io.sparkevents.queue;

import java.util.ArrayDeque;

/**
 * Records that the writer has taken and that are not acknowledged. Used under the {@link RecordQueue}'s lock.
 *
 * <p>A record that is being written stays here until it is written. A written record may be evicted earlier than
 * acknowledged.
 */
final class InFlight {
  /** Maximum number of records to remove per acquisition of the lock, because the listener thread may wait for it. */
  private static final int SLICE = 32;

  private final long mostBytes;
  private final RestoreState restoreState;
  private final EvictedRecords evicted;
  private final ArrayDeque<Record> writing = new ArrayDeque<>();
  private final ArrayDeque<Record> written = new ArrayDeque<>();
  /** Size of the written records in bytes. */
  private long bytes;
  private long ackedSeq;

  InFlight(long mostBytes, RestoreState restoreState, EvictedRecords evicted) {
    this.mostBytes = mostBytes;
    this.restoreState = restoreState;
    this.evicted = evicted;
  }

  int size() {
    return writing.size() + written.size();
  }

  /** Returns the number of records that are being written. */
  int writing() {
    return writing.size();
  }

  /** Returns the newest record up to which all are acknowledged. */
  long ackedSeq() {
    return ackedSeq;
  }

  /** Returns the seq of the newest record; 0 if there is none. */
  long newestSeq() {
    Record newest = writing.isEmpty() ? written.peekLast() : writing.peekLast();
    return newest == null ? 0 : newest.seq();
  }

  /** Adds a record that the writer has taken. */
  void add(Record record) {
    writing.addLast(record);
  }

  /** Marks the records as written. */
  void written() {
    writing.forEach(record -> bytes += record.size());
    written.addAll(writing);
    writing.clear();
  }

  /** Removes a record that cannot be written; returns false if it has left already. */
  boolean remove(Record record) {
    return writing.remove(record);
  }

  boolean exceedsLimit() {
    return bytes > mostBytes;
  }

  /** Evicts the oldest written record; returns false if there is none. */
  boolean evict() {
    if (written.isEmpty()) {
      return false;
    }
    Record oldest = poll();
    if (oldest.seq() > ackedSeq) {
      evicted.add(oldest);
    }
    return true;
  }

  private Record poll() {
    Record oldest = written.pollFirst();
    bytes -= oldest.size();
    restoreState.apply(oldest);
    return oldest;
  }

  /** Removes some of the records up to {@code seq}; returns whether more such records may remain. */
  boolean acknowledge(long seq) {
    ackedSeq = Math.max(ackedSeq, seq);
    evicted.acknowledge(seq);
    for (int left = SLICE; left > 0; left--) {
      if (!written.isEmpty() && written.peekFirst().seq() <= seq) {
        poll();
      } else if (written.isEmpty() && !writing.isEmpty() && writing.peekFirst().seq() <= seq) {
        restoreState.apply(writing.pollFirst());
      } else {
        return false;
      }
    }
    return true;
  }

  /** Makes all records wait again for a new sidecar, and counts the evicted records as lost. */
  void returnTo(Waiting waiting) {
    written();
    for (Record record = written.pollLast(); record != null; record = written.pollLast()) {
      waiting.addFirst(record);
    }
    bytes = 0;
    evicted.lose();
  }

  /** Removes all records after the last sidecar; returns the number of records that may be lost, without accounts. */
  long close() {
    written();
    while (evict()) {
      // The counts of evicted accounts become unreported again below.
    }
    return evicted.clear();
  }
}
