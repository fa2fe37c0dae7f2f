package io.sparkevents;

import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.EnumMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
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
final class Context {
  /** What a subject is. Where there are too many, the first of these go first. */
  enum Rank {
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
  static final class Change {
    private final String subject;
    private final Rank rank;
    private final boolean begins;

    private Change(String subject, Rank rank, boolean begins) {
      this.subject = subject;
      this.rank = rank;
      this.begins = begins;
    }

    /** A new account of the subject begins: what was known of it before is replaced. */
    static Change begin(String subject, Rank rank) {
      return new Change(subject, rank, true);
    }

    /** More about the subject; it takes the place of an earlier record of its kind. */
    static Change add(String subject, Rank rank) {
      return new Change(subject, rank, false);
    }

    /** The subject is over, nobody will ask for it again. */
    static Change forget(String subject) {
      return new Change(subject, null, false);
    }
  }

  /** Subjects beyond this many: of the lowest rank, the one that was quiet for longest is forgotten. */
  private static final int LIMIT = 2_000;

  private final Map<Rank, Map<String, List<Record>>> subjects = new EnumMap<>(Rank.class);
  /** Whose end was dropped before their beginning has left the queue. */
  private final Set<String> endedEarly = new LinkedHashSet<>();

  Context() {
    for (Rank rank : Rank.values()) {
      subjects.put(rank, new LinkedHashMap<>());
    }
  }

  void apply(Record record) {
    Change change = record.change;
    if (change == null) {
      return;
    }
    List<Record> known = take(change.subject);
    if (change.rank == null) {
      if (known.isEmpty()) {
        endedEarly.add(change.subject);
        if (endedEarly.size() > LIMIT) {
          forgetEldest(endedEarly);
        }
      }
    } else if (!endedEarly.remove(change.subject)) {
      addTo(known, record);
      subjects.get(lowestRank(known)).put(change.subject, known);
      forgetSome(change.subject);
    }
  }

  /** All that is known of a subject, which is unknown from now on. */
  private List<Record> take(String subject) {
    for (Map<String, List<Record>> some : subjects.values()) {
      List<Record> known = some.remove(subject);
      if (known != null) {
        return known;
      }
    }
    return new ArrayList<>(2);
  }

  private static void addTo(List<Record> known, Record record) {
    for (Iterator<Record> others = known.iterator(); others.hasNext(); ) {
      Record other = others.next();
      boolean same = other.kind.equals(record.kind);
      if (other.seq() <= record.seq() && (same || record.change.begins)) {
        others.remove();
      } else if (same) {
        return;
      }
    }
    known.add(record);
  }

  private static Rank lowestRank(List<Record> known) {
    Rank lowest = Rank.APPLICATION;
    for (Record record : known) {
      lowest = record.change.rank.compareTo(lowest) < 0 ? record.change.rank : lowest;
    }
    return lowest;
  }

  /** @param latest the subject that was heard of last, which stays though it may be the only one of its rank */
  private void forgetSome(String latest) {
    int count = -subjects.get(Rank.APPLICATION).size();
    for (Map<String, List<Record>> some : subjects.values()) {
      count += some.size();
    }
    if (count > LIMIT) {
      for (Map<String, List<Record>> lowest : subjects.values()) {
        if (!lowest.isEmpty() && !lowest.keySet().iterator().next().equals(latest)) {
          forgetEldest(lowest.keySet());
          return;
        }
      }
    }
  }

  private static void forgetEldest(Set<String> some) {
    Iterator<String> eldest = some.iterator();
    eldest.next();
    eldest.remove();
  }

  /** In the order of their numbers; what has none, because it was before anybody listened, from the application down. */
  Collection<Record> records() {
    List<Record> all = new ArrayList<>();
    for (Map<String, List<Record>> some : subjects.values()) {
      some.values().forEach(all::addAll);
    }
    Comparator<Record> lowestFirst = Comparator.comparing(record -> record.change.rank);
    all.sort(Comparator.comparingLong(Record::seq).thenComparing(lowestFirst.reversed()));
    return all;
  }
}
