package io.sparkevents.queue;

import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.Map;

/**
 * Records that were written to the sidecar's pipe and are not acknowledged. Used under the {@link RecordQueue}'s lock.
 *
 * <p>After the eviction of a record, only the sidecar still has it. If the sidecar dies before it has acknowledged an
 * evicted record, the record is lost and counted.
 */
final class SentRecords {
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
  private static final int LEAST_EVICTED = 64;
  private static final int MOST_EVICTED = 1 << 22;

  final ArrayDeque<Record> records = new ArrayDeque<>();
  /** Size of the records in bytes. */
  long bytes;
  long ackedThrough;

  private final RestoreState restoreState;
  private final DropCounters drops;
  private final ArrayDeque<Evicted> evicted = new ArrayDeque<>();
  private final int mostEvicted;
  /** Counts by kind of the oldest evicted records, which exceeded {@link #mostEvicted}. */
  private final Map<String, Long> evictedBefore = new HashMap<>();
  private long evictedBeforeThrough;

  SentRecords(int capacity, RestoreState restoreState, DropCounters drops) {
    this.restoreState = restoreState;
    this.drops = drops;
    mostEvicted = Math.max(LEAST_EVICTED, (int) Math.min(MOST_EVICTED, 4L * capacity));
  }

  /** Moves all records of {@code writing} to this object. */
  void addAll(ArrayDeque<Record> writing) {
    writing.forEach(record -> bytes += record.size());
    records.addAll(writing);
    writing.clear();
  }

  /** Evicts the oldest record; returns false if there is none. */
  boolean evict() {
    if (records.isEmpty()) {
      return false;
    }
    Record oldest = poll();
    if (oldest.seq() > ackedThrough) {
      if (evicted.size() == mostEvicted) {
        mergeOldestEvicted();
      }
      evicted.addLast(new Evicted(oldest));
    }
    return true;
  }

  private Record poll() {
    Record oldest = records.pollFirst();
    bytes -= oldest.size();
    restoreState.apply(oldest);
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

  /**
   * Removes some of the records up to {@code seq}, here and in {@code writing}; returns whether more such records may
   * remain.
   */
  boolean acknowledge(long seq, ArrayDeque<Record> writing) {
    ackedThrough = Math.max(ackedThrough, seq);
    while (!evicted.isEmpty() && evicted.peekFirst().seq <= seq) {
      evicted.pollFirst();
    }
    if (evictedBeforeThrough <= seq) {
      evictedBefore.clear();
    }
    for (int left = SLICE; left > 0; left--) {
      if (!records.isEmpty() && records.peekFirst().seq() <= seq) {
        poll();
      } else if (records.isEmpty() && !writing.isEmpty() && writing.peekFirst().seq() <= seq) {
        restoreState.apply(writing.pollFirst());
      } else {
        return false;
      }
    }
    return true;
  }

  /** Counts the evicted records as lost, because the sidecar has died. */
  void loseEvicted() {
    evictedBefore.forEach((kind, number) -> drops.count(DropCounters.SIDECAR, kind, number));
    evicted.stream()
        .filter(lost -> lost.account == null)
        .forEach(lost -> drops.count(DropCounters.SIDECAR, lost.kind, 1));
    takeBackEvicted();
  }

  /** Forgets the evicted records; the counts in evicted accounts become unreported again. */
  private void takeBackEvicted() {
    evicted.stream().filter(lost -> lost.account != null).forEach(lost -> drops.takeBack(lost.account));
    evicted.clear();
    evictedBefore.clear();
  }

  /** Removes all records after the last sidecar; returns the number of records that may be lost, without accounts. */
  long close() {
    while (evict()) {
      // The counts of evicted accounts are not lost: they become unreported again below.
    }
    long unconfirmed = evicted.stream().filter(one -> one.account == null).count();
    unconfirmed += evictedBefore.values().stream().mapToLong(Long::longValue).sum();
    takeBackEvicted();
    return unconfirmed;
  }
}
