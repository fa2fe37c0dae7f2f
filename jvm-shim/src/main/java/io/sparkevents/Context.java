package io.sparkevents;

import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * What a sidecar that is started anew must know of the past: the application, and its queries and
 * jobs that are under way.
 *
 * <p>It holds the state as of the last record that was acknowledged. A record changes it when it
 * leaves the {@link HandoffQueue}, not when it enters, because until then the record itself is sent
 * again. Used under the queue's lock.
 */
final class Context {
  /** How one record changes the context. */
  static final class Change {
    private final String subject;
    private final boolean begins;
    private final boolean forgets;

    private Change(String subject, boolean begins, boolean forgets) {
      this.subject = subject;
      this.begins = begins;
      this.forgets = forgets;
    }

    /** A new account of the subject begins: what was known of it before is replaced. */
    static Change begin(String subject) {
      return new Change(subject, true, false);
    }

    /** More about the subject; it takes the place of an earlier record of its kind. */
    static Change add(String subject) {
      return new Change(subject, false, false);
    }

    /** The subject is over, nobody will ask for it again. */
    static Change forget(String subject) {
      return new Change(subject, false, true);
    }
  }

  /** Subjects beyond this many: the one that was quiet for longest is forgotten. */
  private static final int LIMIT = 2_000;

  private final Map<String, List<Record>> subjects = new LinkedHashMap<>();

  void apply(Record record) {
    Change change = record.change;
    if (change == null) {
      return;
    }
    List<Record> known = subjects.remove(change.subject);
    if (change.forgets) {
      return;
    }
    if (known == null || change.begins) {
      known = new ArrayList<>(2);
    }
    for (int i = known.size() - 1; i >= 0; i--) {
      if (known.get(i).kind.equals(record.kind)) {
        known.remove(i);
      }
    }
    known.add(record);
    subjects.put(change.subject, known);
    if (subjects.size() > LIMIT) {
      subjects.remove(subjects.keySet().iterator().next());
    }
  }

  Collection<Record> records() {
    List<Record> all = new ArrayList<>();
    for (List<Record> known : subjects.values()) {
      all.addAll(known);
    }
    all.sort((a, b) -> Long.compare(a.seq(), b.seq()));
    return all;
  }
}
