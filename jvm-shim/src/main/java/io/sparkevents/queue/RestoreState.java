package io.sparkevents.queue;

import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.EnumMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * State that a restarted sidecar needs: the application, and its running queries and jobs.
 *
 * <p>It reflects the acknowledged records. A record changes it when it leaves the {@link HandoffQueue}, because until
 * then the record itself is resent. A dropped record leaves early, so an older record may arrive after a newer one, and
 * then does not undo the newer one. Used under the queue's lock.
 */
public final class RestoreState {
  /** Type of a subject. Beyond the limit, subjects of the first rank are removed first. */
  public enum Rank {
    /** A query run that has ended, or a subject whose end was dropped before its beginning left the queue. */
    OVER,
    /** A job or a stage. If Spark drops its end event, the subject stays until the limit removes it. */
    WORK,
    /** A query run. */
    RUN,
    /** The application: one subject, never removed, because every event needs it. */
    APPLICATION
  }

  /** Effect of one record on the state. */
  public static final class Change {
    public final String subject;
    public final Rank rank;
    public final boolean begins;

    private Change(String subject, Rank rank, boolean begins) {
      this.subject = subject;
      this.rank = rank;
      this.begins = begins;
    }

    /** Replaces all earlier records of the subject. */
    public static Change begin(String subject, Rank rank) {
      return new Change(subject, rank, true);
    }

    /** Adds a record of the subject, replacing an earlier one of the same kind. */
    public static Change add(String subject, Rank rank) {
      return new Change(subject, rank, false);
    }

    /** Removes the subject, which has ended. */
    public static Change forget(String subject) {
      return new Change(subject, null, false);
    }
  }

  /** Maximum number of subjects; beyond it the least recently updated one of the lowest rank is removed. */
  private static final int LIMIT = 2_000;

  /** Records of each subject, by its lowest rank, the least recently updated subject first. */
  private final Map<Rank, Map<String, List<Record>>> subjects = new EnumMap<>(Rank.class);

  public RestoreState() {
    for (Rank rank : Rank.values()) {
      subjects.put(rank, new LinkedHashMap<>());
    }
  }

  /**
   * Applies a record that leaves the queue. When records are dropped, the listener thread calls this for each of them.
   */
  public void apply(Record record) {
    Change change = record.change;
    if (change == null) {
      return;
    }
    List<Record> known = remove(change.subject);
    if (change.rank == null) {
      if (known == null) {
        // Without records: the beginning, which is still to come, is skipped.
        put(Rank.OVER, change.subject, new ArrayList<>());
      }
    } else if (known == null || !known.isEmpty()) {
      List<Record> all = known == null ? new ArrayList<>(1) : known;
      add(all, record);
      Rank lowest = change.rank;
      for (Record other : all) {
        lowest = other.change.rank.compareTo(lowest) < 0 ? other.change.rank : lowest;
      }
      put(lowest, change.subject, all);
    }
  }

  /** Adds a record, replacing older ones of the same kind, or all older ones if the record begins a new account. */
  private static void add(List<Record> known, Record record) {
    boolean isOutdated = false;
    for (Record other : known) {
      isOutdated |= other.kind.equals(record.kind) && other.seq() > record.seq();
    }
    known.removeIf(
        other -> other.seq() <= record.seq() && (record.change.begins || other.kind.equals(record.kind)));
    if (!isOutdated) {
      known.add(record);
    }
  }

  private List<Record> remove(String subject) {
    for (Map<String, List<Record>> rank : subjects.values()) {
      List<Record> known = rank.remove(subject);
      if (known != null) {
        return known;
      }
    }
    return null;
  }

  private void put(Rank rank, String subject, List<Record> records) {
    subjects.get(rank).put(subject, records);
    int size = 0;
    for (Map.Entry<Rank, Map<String, List<Record>>> known : subjects.entrySet()) {
      size += known.getKey() == Rank.APPLICATION ? 0 : known.getValue().size();
    }
    if (size > LIMIT) {
      removeOneBeside(subject);
    }
  }

  private void removeOneBeside(String subject) {
    for (Map<String, List<Record>> rank : subjects.values()) {
      for (String eldest : rank.keySet()) {
        if (!eldest.equals(subject)) {
          rank.remove(eldest);
          return;
        }
      }
    }
  }

  /**
   * Returns the records by number. Records without a number are older than the listener and are sorted by rank, the
   * application first.
   */
  public Collection<Record> records() {
    List<Record> all = new ArrayList<>();
    subjects.values().forEach(rank -> rank.values().forEach(all::addAll));
    Comparator<Record> lowestFirst = Comparator.comparing(record -> record.change.rank);
    all.sort(Comparator.comparingLong(Record::seq).thenComparing(lowestFirst.reversed()));
    return all;
  }
}
