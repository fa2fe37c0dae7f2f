package io.sparkevents.queue;

import java.util.Collection;
import java.util.Comparator;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;

/**
 * What a sidecar that is started anew must know of the past: the application, and its queries and
 * jobs that are under way.
 *
 * <p>It holds the state as of the last record that was acknowledged. A record changes it when it
 * leaves the {@link HandoffQueue}, not when it enters, because until then the record itself is sent
 * again. One that is dropped leaves before its time: so what is older may come after what is newer, and does
 * not undo it. Used under the queue's lock.
 */
public final class RestoreState {
  /** What a subject is. Where there are too many, the first of these go first. */
  public enum Rank {
    /** A run of a query that is over. */
    OVER,
    /** A job or a stage; the end of one may never be told, where Spark has dropped it. */
    WORK,
    /** A run of a query. */
    RUN,
    /** There is one, and without it no event has its place: it stays. */
    APPLICATION
  }

  /** How one record changes the context. */
  public static final class Change {
    public final String subject;
    public final Rank rank;
    public final boolean begins;

    private Change(String subject, Rank rank, boolean begins) {
      this.subject = subject;
      this.rank = rank;
      this.begins = begins;
    }

    /** A new account of the subject begins: what was known of it before is replaced. */
    public static Change begin(String subject, Rank rank) {
      return new Change(subject, rank, true);
    }

    /** More about the subject; it takes the place of an earlier record of its kind. */
    public static Change add(String subject, Rank rank) {
      return new Change(subject, rank, false);
    }

    /** The subject is over, nobody will ask for it again. */
    public static Change forget(String subject) {
      return new Change(subject, null, false);
    }
  }

  /** EntityIndex beyond this many: of the lowest rank, the one that was quiet for longest is forgotten. */
  private static final int LIMIT = 2_000;

  private final EntityIndex subjects = new EntityIndex();
  /** Whose end was dropped before their beginning has left the queue. */
  private final Set<String> endedEarly = new LinkedHashSet<>();

  /** Where records are dropped, the listener's thread comes through here with each of them. */
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

  /** In the order of their numbers; what has none, because it was before anybody listened, from the application down. */
  public Collection<Record> records() {
    List<Record> all = subjects.records();
    Comparator<Record> lowestFirst = Comparator.comparing(record -> record.change.rank);
    all.sort(Comparator.comparingLong(Record::seq).thenComparing(lowestFirst.reversed()));
    return all;
  }
}
