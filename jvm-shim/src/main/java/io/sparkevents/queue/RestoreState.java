package io.sparkevents.queue;

import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * State that a restarted sidecar needs: the application, and its running queries and jobs.
 *
 * <p>The state reflects the acknowledged records. A record changes the state when it leaves the {@link HandoffQueue};
 * until then, the record itself is sent again. A dropped record leaves the queue early, so an older record may arrive
 * after a newer one. In this case, the older record does not undo the newer one. Used under the queue's lock.
 */
public final class RestoreState {
  /** Maximum number of subjects. Above it, the least recently updated subject of the lowest rank is removed. */
  private static final int LIMIT = 2_000;

  /** Records of each subject; the least recently updated subject comes first. */
  private final Map<String, List<Record>> subjects = new LinkedHashMap<>();

  /** Applies a record that leaves the queue. The listener thread calls this for each record that it drops. */
  public void apply(Record record) {
    Record.Change change = record.change;
    if (change == null) {
      return;
    }
    List<Record> known = subjects.remove(change.subject);
    if (change.rank != null && (known == null || !known.isEmpty())) {
      List<Record> all = known == null ? new ArrayList<>(1) : known;
      add(all, record);
      subjects.put(change.subject, all);
    } else if (change.rank == null && known == null) {
      // Keep the subject without records, so that its start record is skipped if it arrives later.
      subjects.put(change.subject, new ArrayList<>());
    }
    if (subjects.size() > LIMIT) {
      removeOneBeside(change.subject);
    }
  }

  /** Adds a record, which replaces older records of the same kind. */
  private static void add(List<Record> known, Record record) {
    known.removeIf(other -> other.kind.equals(record.kind) && other.seq() <= record.seq());
    if (known.stream().noneMatch(other -> other.kind.equals(record.kind))) {
      known.add(record);
    }
  }

  /** Removes the least recently updated subject of the lowest rank; never removes the application. */
  private void removeOneBeside(String newest) {
    String least = null;
    Record.Rank lowest = Record.Rank.APPLICATION;
    for (Map.Entry<String, List<Record>> subject : subjects.entrySet()) {
      Record.Rank rank = rank(subject.getValue());
      if (rank.compareTo(lowest) < 0 && !subject.getKey().equals(newest)) {
        least = subject.getKey();
        lowest = rank;
      }
      if (lowest == Record.Rank.OVER) {
        break;
      }
    }
    subjects.remove(least);
  }

  /** Returns the rank of a subject: the lowest rank of its records. */
  private static Record.Rank rank(List<Record> records) {
    Record.Rank lowest = records.isEmpty() ? Record.Rank.OVER : Record.Rank.APPLICATION;
    for (Record record : records) {
      lowest = record.change.rank.compareTo(lowest) < 0 ? record.change.rank : lowest;
    }
    return lowest;
  }

  /**
   * Returns the records by number. Records without a number are from before the listener was added; they are sorted by
   * rank, the application first.
   */
  public Collection<Record> records() {
    List<Record> all = new ArrayList<>();
    subjects.values().forEach(all::addAll);
    Comparator<Record> lowestFirst = Comparator.comparing(record -> record.change.rank);
    all.sort(Comparator.comparingLong(Record::seq).thenComparing(lowestFirst.reversed()));
    return all;
  }
}
