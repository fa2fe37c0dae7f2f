package io.sparkevents.queue;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * What is known of each subject of a {@link RestoreState}, and in what order, rank by rank, they were heard of last.
 *
 * <p>One table for all ranks, and the order in the entries themselves: a subject is looked up once, however many ranks
 * there are.
 */
final class EntityIndex {
  /** One of a ring for each rank; the first of a ring is none, behind it is the one that was quiet for longest. */
  private static final class Subject {
    private final String name;
    /** The lowest of its records' ranks. */
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

    /** It takes the place of older ones of its kind, where it begins a new account of all older ones. */
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

  /** The subject is over; false where it was not known. */
  boolean forget(String name) {
    Subject subject = all.remove(name);
    if (subject != null) {
      take(subject);
    }
    return subject != null;
  }

  /** The subject is heard of. */
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

  /** Forgets the one of the lowest rank that was quiet for longest. {@code name} stays, though it may be alone in its rank. */
  void forgetOneBeside(String name) {
    for (Subject ring : rings) {
      Subject eldest = ring.behind;
      if (eldest != ring && !eldest.name.equals(name)) {
        forget(eldest.name);
        return;
      }
    }
  }

  /** All that is known, the lowest rank first. */
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
