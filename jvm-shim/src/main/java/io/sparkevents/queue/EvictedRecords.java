package io.sparkevents.queue;

import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.Map;

/**
 * Records that were evicted before the sidecar acknowledged them: only the sidecar still has them. If it dies, they are
 * lost and counted. Used under the {@link RecordQueue}'s lock.
 */
final class EvictedRecords {
  private static final int LEAST = 64;
  private static final int MOST = 1 << 22;

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

  private final DropCounters drops;
  private final ArrayDeque<Evicted> evicted = new ArrayDeque<>();
  private final int most;
  /** Counts by kind of the oldest evicted records, which exceeded {@link #most}, and the newest of these records. */
  private final Map<String, Long> older = new HashMap<>();
  private long olderSeq;

  EvictedRecords(int capacity, DropCounters drops) {
    this.drops = drops;
    most = Math.max(LEAST, (int) Math.min(MOST, 4L * capacity));
  }

  void add(Record record) {
    if (evicted.size() == most) {
      Evicted oldest = evicted.pollFirst();
      if (oldest.account == null) {
        older.merge(oldest.kind, 1L, Long::sum);
        olderSeq = oldest.seq;
      } else {
        // It is better to report an event twice than to lose it.
        drops.takeBack(oldest.account);
      }
    }
    evicted.addLast(new Evicted(record));
  }

  /** Forgets the records up to {@code seq}, which the sidecar has acknowledged. */
  void acknowledge(long seq) {
    while (!evicted.isEmpty() && evicted.peekFirst().seq <= seq) {
      evicted.pollFirst();
    }
    if (olderSeq <= seq) {
      older.clear();
    }
  }

  /** Counts all records as lost, because the sidecar has died. */
  void lose() {
    older.forEach((kind, records) -> drops.add(DropCounters.SIDECAR, kind, records));
    evicted.stream()
        .filter(lost -> lost.account == null)
        .forEach(lost -> drops.add(DropCounters.SIDECAR, lost.kind, 1));
    clear();
  }

  /** Forgets all records; the counts in accounts become unreported again. Returns the number of the other records. */
  long clear() {
    long records = older.values().stream().mapToLong(Long::longValue).sum();
    for (Evicted one : evicted) {
      if (one.account == null) {
        records++;
      } else {
        drops.takeBack(one.account);
      }
    }
    evicted.clear();
    older.clear();
    return records;
  }
}
