package io.sparkevents.queue;

import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.Comparator;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

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

  /**
   * Records of each subject, grouped by the lowest rank of these records; the least recently updated subject comes
   * first. Indexed by the rank's ordinal. This is a list, because iterating over an EnumMap takes longer.
   */
  private final List<Map<String, List<Record>>> subjects = new ArrayList<>();

  public RestoreState() {
    for (Record.Rank rank : Record.Rank.values()) {
      subjects.add(new LinkedHashMap<>());
    }
  }

  private Map<String, List<Record>> of(Record.Rank rank) {
    return subjects.get(rank.ordinal());
  }

  /**
   * Applies a record that leaves the queue.
   *
   * <p>The listener thread calls this for each record that it drops. The code uses loops, because in a flood of
   * records, streams would double the time of a callback.
   */
  public void apply(Record record) {
    Record.Change change = record.change;
    if (change == null) {
      return;
    }
    List<Record> known = remove(change.subject);
    if (known == null && change.rank == null) {
      // Keep the subject without records, so that its start record is skipped if it arrives later.
      put(Record.Rank.OVER, change.subject, Collections.emptyList());
    } else if (known == null) {
      put(change.rank, change.subject, Collections.singletonList(record));
    } else if (change.rank != null && !known.isEmpty()) {
      List<Record> all = new ArrayList<>(known);
      add(all, record);
      Record.Rank lowest = change.rank;
      for (Record other : all) {
        lowest = other.change.rank.compareTo(lowest) < 0 ? other.change.rank : lowest;
      }
      put(lowest, change.subject, all);
    }
  }

  /** Adds a record, which replaces older records of the same kind. */
  private static void add(List<Record> known, Record record) {
    boolean isOutdated = false;
    for (Record other : known) {
      isOutdated |= other.kind.equals(record.kind) && other.seq() > record.seq();
    }
    known.removeIf(other -> other.kind.equals(record.kind) && other.seq() <= record.seq());
    if (!isOutdated) {
      known.add(record);
    }
  }

  private List<Record> remove(String subject) {
    for (Map<String, List<Record>> rank : subjects) {
      List<Record> known = rank.remove(subject);
      if (known != null) {
        return known;
      }
    }
    return null;
  }

  private void put(Record.Rank rank, String subject, List<Record> records) {
    of(rank).put(subject, records);
    if (rank == Record.Rank.OVER && !records.isEmpty()) {
      trimEnded();
    }
    int size = -of(Record.Rank.APPLICATION).size();
    for (Map<String, List<Record>> known : subjects) {
      size += known.size();
    }
    if (size > LIMIT) {
      removeOneBeside(subject);
    }
  }

  private void removeOneBeside(String subject) {
    for (Map<String, List<Record>> rank : subjects) {
      for (String eldest : rank.keySet()) {
        if (!eldest.equals(subject)) {
          rank.remove(eldest);
          return;
        }
      }
    }
  }

  /** Removes the least recently updated ended runs beyond {@link #MOST_OF_ENDED}. */
  private void trimEnded() {
    Collection<List<Record>> ended = of(Record.Rank.OVER).values();
    long size = 0;
    for (List<Record> run : ended) {
      size += sizeOf(run);
    }
    Iterator<List<Record>> oldest = ended.iterator();
    while (size > MOST_OF_ENDED && ended.size() > 1) {
      size -= sizeOf(oldest.next());
      oldest.remove();
    }
  }

  private static long sizeOf(List<Record> records) {
    long size = 0;
    for (Record record : records) {
      size += record.size();
    }
    return size;
  }

  /**
   * Returns the records by number. Records without a number are from before the listener was added; they are sorted by
   * rank, the application first.
   */
  public Collection<Record> records() {
    List<Record> all = new ArrayList<>();
    subjects.forEach(rank -> rank.values().forEach(all::addAll));
    Comparator<Record> lowestFirst = Comparator.comparing(record -> record.change.rank);
    all.sort(Comparator.comparingLong(Record::seq).thenComparing(lowestFirst.reversed()));
    return all;
  }
}
