package io.sparkevents.queue;

import java.util.ArrayDeque;

/**
 * Records that wait to be taken by the writer. Decides which record to drop. Used under the {@link RecordQueue}'s lock.
 *
 * <p>Two deques hold the records by priority, so that the record to drop is found without a search.
 */
final class Waiting {
  private final long mostBytes;
  private final ArrayDeque<Record> routine = new ArrayDeque<>();
  private final ArrayDeque<Record> lifecycle = new ArrayDeque<>();
  /** Size of the records together; each record states its own. */
  private long bytes;

  Waiting(long mostBytes) {
    this.mostBytes = mostBytes;
  }

  int size() {
    return routine.size() + lifecycle.size();
  }

  boolean isEmpty() {
    return routine.isEmpty() && lifecycle.isEmpty();
  }

  /** Returns the size of the records together, in bytes. */
  long bytes() {
    return bytes;
  }

  void addLast(Record record) {
    bytes += record.size();
    of(record.priority).addLast(record);
  }

  /** Adds a record again that was taken earlier. */
  void addFirst(Record record) {
    bytes += record.size();
    of(record.priority).addFirst(record);
  }

  private ArrayDeque<Record> of(Record.Priority priority) {
    return priority == Record.Priority.ROUTINE ? routine : lifecycle;
  }

  /** Removes and returns the record with the lowest seq; null if there is none. */
  Record poll() {
    Record first = routine.peekFirst();
    Record other = lifecycle.peekFirst();
    boolean isRoutine = other == null || (first != null && first.seq() < other.seq());
    Record oldest = isRoutine ? first : other;
    if (oldest != null) {
      bytes -= oldest.size();
      (isRoutine ? routine : lifecycle).pollFirst();
    }
    return oldest;
  }

  /** Whether the record exceeds the limit alone. Such a record must not displace others, such as failures. */
  boolean isTooLarge(Record record) {
    return record.size() > mostBytes;
  }

  /** Whether other records must be dropped before this record is within the limit. */
  boolean exceedsLimitWith(Record record) {
    return record.size() > 0 && bytes + record.size() > mostBytes && !isEmpty();
  }

  /**
   * Removes and returns the record to drop in favour of one with priority {@code most}: the oldest of the lowest
   * priority. Returns null if all records have a higher priority.
   */
  Record pollLowest(Record.Priority most) {
    Record lowest = routine.pollFirst();
    if (lowest == null && most != Record.Priority.ROUTINE) {
      lowest = pollLifecycle();
    }
    if (lowest != null) {
      bytes -= lowest.size();
    }
    return lowest;
  }

  private Record pollLifecycle() {
    for (Record record : lifecycle) {
      if (record.priority != Record.Priority.ACCOUNT) {
        lifecycle.removeFirstOccurrence(record);
        return record;
      }
    }
    return null;
  }
}
