package io.sparkevents.queue;

import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
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
    Record.Change change = record.change;
    if (change == null) {
      return;
    }
    if (change.rank == null) {
      forget(change.subject, record.seq());
    } else if (record.seq() > change.subject.endSeq) {
      keep(change.subject, record);
    }
  }

  private void forget(Subject subject, long seq) {
    subject.endSeq = Math.max(subject.endSeq, seq);
    if (subject.records.isEmpty()) {
      return;
    }
    List<Record> newer = Collections.emptyList();
    for (Record known : subject.records) {
      newer = known.seq() > seq ? with(newer, known) : newer;
    }
    replace(subject, newer);
  }

  private void keep(Subject subject, Record record) {
    List<Record> records = subject.records;
    for (Record known : subject.records) {
      if (known.kind.equals(record.kind)) {
        if (known.seq() > record.seq()) {
          return;
        }
        records = without(records, known);
      }
    }
    replace(subject, with(records, record));
    if (subject.rank == Record.Rank.OVER) {
      trimEnded();
    }
    if (size > LIMIT) {
      removeOneBeside(subject);
    }
  }

  private static List<Record> with(List<Record> records, Record record) {
    if (records.isEmpty()) {
      return Collections.singletonList(record);
    }
    List<Record> all = new ArrayList<>(records);
    all.add(record);
    return all;
  }

  private static List<Record> without(List<Record> records, Record record) {
    if (records.size() == 1) {
      return Collections.emptyList();
    }
    List<Record> others = new ArrayList<>(records);
    others.remove(record);
    return others;
  }

  /** Replaces the records of a subject, which becomes the most recently updated one of its rank. */
  private void replace(Subject subject, List<Record> records) {
    if (!subject.records.isEmpty()) {
      ranks[subject.rank.ordinal()].remove(subject);
      size -= subject.rank == Record.Rank.APPLICATION ? 0 : 1;
    }
    subject.records = records;
    if (!records.isEmpty()) {
      subject.rank = lowestRank(records);
      ranks[subject.rank.ordinal()].addLast(subject);
      size += subject.rank == Record.Rank.APPLICATION ? 0 : 1;
    }
  }

  private static Record.Rank lowestRank(List<Record> records) {
    Record.Rank lowest = records.get(0).change.rank;
    for (Record record : records) {
      lowest = record.change.rank.compareTo(lowest) < 0 ? record.change.rank : lowest;
    }
    return lowest;
  }

  private void removeOneBeside(Subject subject) {
    for (Ranked rank : ranks) {
      Subject eldest = rank.ends.next == subject ? subject.next : rank.ends.next;
      if (eldest != rank.ends) {
        replace(eldest, Collections.emptyList());
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
      replace(ended.ends.next, Collections.emptyList());
    }
  }

  private static long sizeOf(Subject subject) {
    long bytes = 0;
    for (Record record : subject.records) {
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
        all.addAll(subject.records);
      }
    }
    Comparator<Record> lowestFirst = Comparator.comparing(record -> record.change.rank);
    all.sort(Comparator.comparingLong(Record::seq).thenComparing(lowestFirst.reversed()));
    return all;
  }
}
