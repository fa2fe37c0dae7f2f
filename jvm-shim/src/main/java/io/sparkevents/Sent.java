package io.sparkevents;

import java.util.ArrayDeque;
import java.util.Iterator;
import java.util.function.Consumer;

/**
 * Records that were given to the sidecar and are not acknowledged; used under the {@link HandoffQueue}'s
 * lock.
 *
 * <p>Those that had to make room for newer ones live on in the sidecar alone. Their kinds are
 * remembered, because if the sidecar dies before it acknowledges them they are lost, and that is
 * counted.
 */
final class Sent {
  /** What is left of a record that made room. */
  private static final class Trace {
    final long seq;
    final String kind;
    /** Null: it was none. */
    final Drops.Account account;

    Trace(Record record) {
      seq = record.seq();
      kind = record.kind;
      account = record instanceof Drops.Account ? (Drops.Account) record : null;
    }
  }

  private final ArrayDeque<Record> records = new ArrayDeque<>();
  private final ArrayDeque<Trace> traces = new ArrayDeque<>();
  private final int mostTraces;
  /** Up to here they have been written, not only taken to be written. */
  private long writtenThrough;
  /** Of those that have been written, the lines. */
  private long bytes;
  private long ackedThrough;

  Sent(int mostTraces) {
    this.mostTraces = mostTraces;
  }

  int size() {
    return records.size();
  }

  boolean isEmpty() {
    return records.isEmpty();
  }

  void add(Record record) {
    records.addLast(record);
  }

  /** How many bytes those hold that have been written. */
  long bytes() {
    return bytes;
  }

  /** What was taken so far is in the pipe. */
  void allWritten() {
    long before = writtenThrough;
    for (Iterator<Record> newest = records.descendingIterator(); newest.hasNext(); ) {
      Record record = newest.next();
      if (record.seq() <= before) {
        break;
      }
      writtenThrough = Math.max(writtenThrough, record.seq());
      bytes += record.size();
    }
  }

  /** It is not held any more. */
  private Record left(Record record) {
    if (record != null && record.seq() <= writtenThrough) {
      bytes -= record.size();
    }
    return record;
  }

  /** There is another sidecar, to which nothing has been written yet. */
  void startAnew() {
    writtenThrough = 0;
  }

  /** The oldest record, if it is in the pipe and so can make room; or null. */
  Record evict() {
    Record oldest = records.peekFirst();
    if (oldest == null || oldest.seq() > writtenThrough) {
      return null;
    }
    if (oldest.seq() > ackedThrough) {
      if (traces.size() == mostTraces) {
        traces.pollFirst();
      }
      traces.addLast(new Trace(oldest));
    }
    return left(records.pollFirst());
  }

  /** The oldest record if it is not newer than {@code seq}, or null. */
  Record pollThrough(long seq) {
    Record oldest = records.peekFirst();
    return oldest == null || oldest.seq() > seq ? null : left(records.pollFirst());
  }

  /** Up to {@code seq} all is acknowledged, and nothing of it can be lost any more. */
  void acknowledgedThrough(long seq) {
    ackedThrough = seq;
    while (!traces.isEmpty() && traces.peekFirst().seq <= seq) {
      traces.pollFirst();
    }
  }

  /** Tells the kinds of those that made room and were not acknowledged, and accounts themselves: their sidecar is gone. */
  void loseTraces(Consumer<String> lost, Consumer<Drops.Account> lostAccount) {
    for (Trace trace = traces.pollFirst(); trace != null; trace = traces.pollFirst()) {
      if (trace.account == null) {
        lost.accept(trace.kind);
      } else {
        lostAccount.accept(trace.account);
      }
    }
  }

  boolean remove(Record record) {
    boolean was = records.removeLastOccurrence(record);
    if (was) {
      left(record);
    }
    return was;
  }

  Record pollLast() {
    return left(records.pollLast());
  }
}
