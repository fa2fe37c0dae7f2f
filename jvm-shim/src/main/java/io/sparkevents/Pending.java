package io.sparkevents;

import java.util.ArrayDeque;
import java.util.Iterator;

/**
 * Records that wait to be sent, in the order of their numbers; used under the {@link HandoffQueue}'s lock.
 *
 * <p>Two deques, by worth, so that a full queue finds at once what to give up: a driver that is flooded
 * while nobody reads must not search a thousand records for each new one.
 */
final class Pending {
  private final ArrayDeque<Record> routine = new ArrayDeque<>();
  private final ArrayDeque<Record> lifecycle = new ArrayDeque<>();

  private long bytes;

  /** How much they hold, as far as that is known. */
  long bytes() {
    return bytes;
  }

  int size() {
    return routine.size() + lifecycle.size();
  }

  boolean isEmpty() {
    return routine.isEmpty() && lifecycle.isEmpty();
  }

  void addLast(Record record) {
    bytes += record.size();
    of(record).addLast(record);
  }

  /** Only for a record that is older than all that are here. */
  void addFirst(Record record) {
    bytes += record.size();
    of(record).addFirst(record);
  }

  private ArrayDeque<Record> of(Record record) {
    return record.worth == Record.Worth.ROUTINE ? routine : lifecycle;
  }

  /** The oldest record, or null. */
  Record pollFirst() {
    Record other = routine.peekFirst();
    Record worthier = lifecycle.peekFirst();
    if (worthier == null || (other != null && other.seq() < worthier.seq())) {
      return left(routine.pollFirst());
    }
    return left(lifecycle.pollFirst());
  }

  /** Nobody makes a line of one that waits: it holds what it held when it came. */
  private Record left(Record record) {
    bytes -= record == null ? 0 : record.size();
    return record;
  }

  /** Takes out the oldest of those that are worth no more than {@code worth}, the least worthy first; or null. */
  Record pollLeast(Record.Worth worth) {
    Record least = routine.pollFirst();
    if (least != null || worth == Record.Worth.ROUTINE) {
      return left(least);
    }
    for (Iterator<Record> oldestFirst = lifecycle.iterator(); oldestFirst.hasNext(); ) {
      Record record = oldestFirst.next();
      // What tells of losses is not to be lost; there is hardly ever more than one of it.
      if (record.worth != Record.Worth.ACCOUNT) {
        oldestFirst.remove();
        return left(record);
      }
    }
    return null;
  }
}
