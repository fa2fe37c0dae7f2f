package io.sparkevents.queue;

import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.List;

/**
 * State that a restarted sidecar needs: the application, and its running queries, micro-batches, jobs and stages.
 *
 * <p>The state reflects the acknowledged records. A record changes the state when it leaves the {@link RecordQueue};
 * until then, the record itself is sent again. A dropped record leaves the queue early, so an older record may arrive
 * after a newer one. In this case, the older record does not undo the newer one. Used under the queue's lock.
 */
public final class RestoreState {
  /** Maximum number of subjects. Above it, the least recently updated subject of the lowest rank is removed. */
  private static final int LIMIT = 2_000;
  /** Maximum size of the records of all ended runs together, in bytes, except the run that ended last. */
  private static final long MOST_OF_ENDED = 4 << 20;

  /** Subjects of one rank, the least recently updated first; linked by the subjects, so that no change allocates. */
  private static final class Ranked {
    /** Precedes the first subject and follows the last one. */
    final Subject ends = new Subject();
    int size;

    Ranked() {
      ends.previous = ends;
      ends.next = ends;
    }

    void addLast(Subject subject) {
      subject.previous = ends.previous;
      subject.next = ends;
      ends.previous.next = subject;
      ends.previous = subject;
      size++;
    }

    void remove(Subject subject) {
      subject.previous.next = subject.next;
      subject.next.previous = subject.previous;
      subject.previous = null;
      subject.next = null;
      size--;
    }
  }

  private final Ranked[] ranks = new Ranked[Record.Rank.values().length];
  /** Number of subjects without the application. */
  private int size;

  public RestoreState() {
    for (int i = 0; i < ranks.length; i++) {
      ranks[i] = new Ranked();
    }
  }

  /** Applies a record that leaves the queue. The listener thread calls this for each record that it drops. */
  public void apply(Record record) {
    Subject subject = record.subject;
    if (subject == null) {
      return;
    }
    if (record.rank == null) {
      forget(subject, record.seq());
    } else if (record.seq() > subject.endSeq) {
      keep(subject, record);
    }
  }

  private void forget(Subject subject, long seq) {
    subject.endSeq = Math.max(subject.endSeq, seq);
    if (subject.records != null) {
      replace(subject, newer(subject.records, seq));
    }
  }

  private void keep(Subject subject, Record record) {
    for (Record known = subject.records; known != null; known = known.sibling) {
      if (known.seq() > record.seq() && known.kind.equals(record.kind)) {
        return;
      }
    }
    record.sibling = without(subject.records, record.kind);
    replace(subject, record);
    if (subject.rank == Record.Rank.OVER) {
      trimEnded();
    }
    if (size > LIMIT) {
      removeOneBeside(subject);
    }
  }

  /** Returns those of the linked records that are newer than {@code seq}. */
  private static Record newer(Record first, long seq) {
    if (first == null) {
      return null;
    }
    Record others = newer(first.sibling, seq);
    first.sibling = first.seq() > seq ? others : null;
    return first.seq() > seq ? first : others;
  }

  /** Returns the linked records without the one of this kind. */
  private static Record without(Record first, String kind) {
    if (first == null) {
      return null;
    }
    Record others = without(first.sibling, kind);
    first.sibling = first.kind.equals(kind) ? null : others;
    return first.kind.equals(kind) ? others : first;
  }

  /** Replaces the records of a subject, which becomes the most recently updated one of its rank. */
  private void replace(Subject subject, Record records) {
    if (subject.rank != null) {
      ranks[subject.rank.ordinal()].remove(subject);
      size -= subject.rank == Record.Rank.APPLICATION ? 0 : 1;
    }
    subject.records = records;
    subject.rank = lowestRank(records);
    if (subject.rank != null) {
      ranks[subject.rank.ordinal()].addLast(subject);
      size += subject.rank == Record.Rank.APPLICATION ? 0 : 1;
    }
  }

  /** Returns the lowest rank of the linked records; null if there are none. */
  private static Record.Rank lowestRank(Record first) {
    Record.Rank lowest = null;
    for (Record record = first; record != null; record = record.sibling) {
      lowest = lowest == null || record.rank.compareTo(lowest) < 0 ? record.rank : lowest;
    }
    return lowest;
  }

  private void removeOneBeside(Subject subject) {
    for (Ranked rank : ranks) {
      Subject eldest = rank.ends.next == subject ? subject.next : rank.ends.next;
      if (eldest != rank.ends) {
        replace(eldest, null);
        return;
      }
    }
  }

  /** Removes the least recently updated ended runs beyond {@link #MOST_OF_ENDED}. */
  private void trimEnded() {
    Ranked ended = ranks[Record.Rank.OVER.ordinal()];
    long bytes = 0;
    for (Subject run = ended.ends.next; run != ended.ends; run = run.next) {
      bytes += sizeOf(run);
    }
    while (bytes > MOST_OF_ENDED && ended.size > 1) {
      bytes -= sizeOf(ended.ends.next);
      replace(ended.ends.next, null);
    }
  }

  private static long sizeOf(Subject subject) {
    long bytes = 0;
    for (Record record = subject.records; record != null; record = record.sibling) {
      bytes += record.size();
    }
    return bytes;
  }

  /**
   * Returns the records by seq. Records without a seq are from before the listener was added; they are sorted by
   * rank, the application first.
   */
  public Collection<Record> records() {
    List<Record> all = new ArrayList<>();
    for (Ranked rank : ranks) {
      for (Subject subject = rank.ends.next; subject != rank.ends; subject = subject.next) {
        for (Record record = subject.records; record != null; record = record.sibling) {
          all.add(record);
        }
      }
    }
    Comparator<Record> lowestFirst = Comparator.comparing(record -> record.rank);
    all.sort(Comparator.comparingLong(Record::seq).thenComparing(lowestFirst.reversed()));
    return all;
  }
}
