package io.sparkevents.queue;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;

/**
 * Counts what was given up, by place and kind, and makes records of it; used under the {@link
 * HandoffQueue}'s lock.
 *
 * <p>The account is a record like the others: numbered, sent again to a new sidecar, acknowledged. So
 * what was lost is not lost track of. The first is made at once; while it goes on, one every ten seconds.
 */
public final class DropCounters {
  /** Records that were lost between the listener and the sidecar. */
  public static final String HANDOFF = "handoff";
  /** Records that had made room in the queue, and were with a sidecar that died. */
  public static final String SIDECAR = "sidecar";
  /** Records that no text could be made of. */
  static final String UNWRITABLE = "unwritable";
  /** Events that Spark itself did not give to its listeners. */
  public static final String LISTENER_QUEUE = "spark-listener-queue";
  /** Records that an earlier run of the application lost and could not report. */
  public static final String EARLIER_RUN = "earlier-run";

  /** What was given up at one place, as a record. */
  static final class Account extends Record {
    private final String where;
    private final Map<String, long[]> counts;

    private Account(String where, Map<String, long[]> counts) {
      super(
          "dropped",
          Priority.ACCOUNT,
          null,
          json -> {
            json.writeStringField("where", where);
            json.writeObjectFieldStart("records");
            for (Map.Entry<String, long[]> count : counts.entrySet()) {
              json.writeNumberField(count.getKey(), count.getValue()[0]);
            }
            json.writeEndObject();
          });
      this.where = where;
      this.counts = counts;
    }
  }

  private static final long INTERVAL_NANOS = TimeUnit.SECONDS.toNanos(10);

  /** By place, then kind; the counts are arrays, so that counting allocates nothing. */
  private final Map<String, Map<String, long[]>> unreported = new LinkedHashMap<>();
  private boolean accountUnderWay;
  private boolean reportedBefore;
  private long reportedNanos;
  private long total;
  private volatile String notice;

  void count(String where, String kind, long number) {
    // The total is of this run.
    total += where.equals(EARLIER_RUN) ? 0 : number;
    // Looked up first, for the listener's thread may come through here with every record.
    Map<String, long[]> counts = unreported.get(where);
    long[] count = counts == null ? null : counts.get(kind);
    if (count == null) {
      count = new long[1];
      unreported.computeIfAbsent(where, place -> new LinkedHashMap<>()).put(kind, count);
    }
    count[0] += number;
  }

  /** Counts a record whose own line reports the loss. */
  void countReported() {
    total++;
  }

  /** All that were dropped, ever. */
  long total() {
    return total;
  }

  boolean isDue(long nowNanos, boolean last) {
    return !unreported.isEmpty()
        && !accountUnderWay
        && (last || !reportedBefore || nowNanos - reportedNanos >= INTERVAL_NANOS);
  }

  /** The account of one place, as a record; its drops count as told from now on. */
  Account account(long nowNanos) {
    String where = unreported.keySet().iterator().next();
    Map<String, long[]> counts = unreported.remove(where);
    accountUnderWay = true;
    reportedBefore = true;
    // With more than one place, the next is told at once.
    reportedNanos = unreported.isEmpty() ? nowNanos : nowNanos - INTERVAL_NANOS;
    notice = where + " dropped " + text(counts);
    return new Account(where, counts);
  }

  /** An account was lost before a sidecar had acknowledged it: what it told is to be told again. */
  void takeBack(Account lost) {
    Map<String, long[]> counts = unreported.computeIfAbsent(lost.where, place -> new LinkedHashMap<>());
    lost.counts.forEach((kind, number) -> counts.computeIfAbsent(kind, unknown -> new long[1])[0] += number[0]);
  }

  /** An account has left the queue; the next may enter. */
  void accountLeft() {
    accountUnderWay = false;
  }

  /** For the log, once: the account that was made last, or null. May be called without the lock. */
  String takeNotice() {
    String last = notice;
    if (last != null) {
      notice = null;
    }
    return last;
  }

  /** What is in no account, by kind of record. */
  Map<String, Long> unreportedByKind() {
    Map<String, Long> all = new TreeMap<>();
    for (Map<String, long[]> place : unreported.values()) {
      place.forEach((kind, number) -> all.merge(kind, number[0], Long::sum));
    }
    return all;
  }

  /** What is in no account, as text; empty where there is nothing. */
  String unreported() {
    StringBuilder all = new StringBuilder();
    for (Map.Entry<String, Map<String, long[]>> place : unreported.entrySet()) {
      all.append(all.length() == 0 ? "" : "; ");
      all.append(place.getKey()).append(" dropped ").append(text(place.getValue()));
    }
    return all.toString();
  }

  private static String text(Map<String, long[]> counts) {
    StringBuilder text = new StringBuilder("{");
    String separator = "";
    for (Map.Entry<String, long[]> count : counts.entrySet()) {
      text.append(separator).append(count.getKey()).append('=').append(count.getValue()[0]);
      separator = ", ";
    }
    return text.append('}').toString();
  }
}
