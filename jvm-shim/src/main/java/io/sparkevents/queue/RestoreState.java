package io.sparkevents.queue;

import java.util.Collection;
import java.util.Comparator;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;

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
    /** A query run that has ended. */
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

  private final EntityIndex subjects = new EntityIndex();
  /** Subjects whose end was dropped before their beginning has left the queue. */
  private final Set<String> endedEarly = new LinkedHashSet<>();

  /**
   * Applies a record that leaves the queue. When records are dropped, the listener thread calls this for each of them.
   */
  public void apply(Record record) {
    Change change = record.change;
    if (change == null) {
      return;
    }
    if (change.rank == null) {
      if (!subjects.forget(change.subject)) {
        noteEarlyEnd(change.subject);
      }
    } else if (endedEarly.isEmpty() || !endedEarly.remove(change.subject)) {
      subjects.note(change.subject, record);
      if (subjects.size() - subjects.size(Rank.APPLICATION) > LIMIT) {
        subjects.forgetOneBeside(change.subject);
      }
    }
  }

  private void noteEarlyEnd(String subject) {
    endedEarly.add(subject);
    if (endedEarly.size() > LIMIT) {
      Iterator<String> eldest = endedEarly.iterator();
      eldest.next();
      eldest.remove();
    }
  }

  /**
   * Returns the records by number. Records without a number are older than the listener and are sorted by rank, the
   * application first.
   */
  public Collection<Record> records() {
    List<Record> all = subjects.records();
    Comparator<Record> lowestFirst = Comparator.comparing(record -> record.change.rank);
    all.sort(Comparator.comparingLong(Record::seq).thenComparing(lowestFirst.reversed()));
    return all;
  }
}
