package io.sparkevents.queue;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Index of the subjects of a {@link RestoreState}: their records, and their order of last use within each rank.
 *
 * <p>One map holds the subjects of all ranks, and the subjects themselves are linked into one ring per rank, so that
 * each update needs one lookup.
 */
final class EntityIndex {
  /**
   * Member of the ring of its rank. The head of a ring is a sentinel; the subject behind it was updated least recently.
   */
  private static final class Subject {
    private final String name;
    /** Lowest rank of its records. */
    private RestoreState.Rank rank;
    private Record[] records = {};
    private Subject before = this;
    private Subject behind = this;

    Subject(String name) {
      this.name = name;
    }

    void leave() {
      before.behind = behind;
      behind.before = before;
    }

    void join(Subject ring) {
      before = ring.before;
      behind = ring;
      before.behind = this;
      ring.before = this;
    }

    void add(Record record) {
      records = records.length == 0 ? new Record[] {record} : with(records, record);
      rank = records[0].change.rank;
      for (Record other : records) {
        rank = other.change.rank.compareTo(rank) < 0 ? other.change.rank : rank;
      }
    }

    /** Adds a record, replacing older ones of the same kind, or all older ones if the record begins a new account. */
    private static Record[] with(Record[] known, Record record) {
      Record[] all = new Record[known.length + 1];
      int count = 0;
      boolean isOutdated = false;
      for (Record other : known) {
        boolean same = other.kind.equals(record.kind);
        if (isOutdated || other.seq() > record.seq() || !(same || record.change.begins)) {
          all[count++] = other;
          isOutdated |= same;
        }
      }
      if (!isOutdated) {
        all[count++] = record;
      }
      return Arrays.copyOf(all, count);
    }
  }

  private final Map<String, Subject> all = new HashMap<>();
  private final Subject[] rings = new Subject[RestoreState.Rank.values().length];
  private final int[] sizes = new int[rings.length];

  EntityIndex() {
    Arrays.setAll(rings, rank -> new Subject(""));
  }

  int size() {
    return all.size();
  }

  int size(RestoreState.Rank rank) {
    return sizes[rank.ordinal()];
  }

  /** Removes a subject that has ended; returns false if it is unknown. */
  boolean forget(String name) {
    Subject subject = all.remove(name);
    if (subject != null) {
      take(subject);
    }
    return subject != null;
  }

  /** Adds a record to its subject, and makes it the most recently updated one of its rank. */
  void note(String name, Record record) {
    Subject subject = all.get(name);
    if (subject == null) {
      subject = new Subject(name);
      all.put(name, subject);
    } else {
      take(subject);
    }
    subject.add(record);
    int rank = subject.rank.ordinal();
    subject.join(rings[rank]);
    sizes[rank]++;
  }

  private void take(Subject subject) {
    subject.leave();
    sizes[subject.rank.ordinal()]--;
  }

  /** Removes the least recently updated subject of the lowest rank, other than {@code name}. */
  void forgetOneBeside(String name) {
    for (Subject ring : rings) {
      Subject eldest = ring.behind;
      if (eldest != ring && !eldest.name.equals(name)) {
        forget(eldest.name);
        return;
      }
    }
  }

  /** Returns all records, those of the lowest rank first. */
  List<Record> records() {
    List<Record> known = new ArrayList<>();
    for (Subject ring : rings) {
      for (Subject subject = ring.behind; subject != ring; subject = subject.behind) {
        Collections.addAll(known, subject.records);
      }
    }
    return known;
  }
}
