package io.sparkevents.queue;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;

/**
 * Counts dropped records by place and kind, and reports the counts as records. Used under the {@link HandoffQueue}'s
 * lock.
 *
 * <p>Such an account is a record like the others: it has a number, is resent to a new sidecar and is acknowledged, so a
 * count is never lost. The first drop is reported at once, later ones at most every ten seconds.
 */
public final class DropCounters {
  /** Records that were lost between the listener and the sidecar. */
  public static final String HANDOFF = "handoff";
  /** Records that were evicted from the queue and lost with a sidecar that died. */
  public static final String SIDECAR = "sidecar";
  /** Records that could not be written as JSON. */
  static final String UNWRITABLE = "unwritable";
  /** Events that Spark's listener bus did not deliver to its listeners. */
  public static final String LISTENER_QUEUE = "spark-listener-queue";
  /** Records that an earlier run of the application lost and could not report. */
  public static final String EARLIER_RUN = "earlier-run";

  /** Record that reports the drops at one place. */
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

  /** Counts by place, then kind; arrays, so that counting allocates nothing. */
  private final Map<String, Map<String, long[]>> unreported = new LinkedHashMap<>();
  private boolean accountUnderWay;
  private boolean reportedBefore;
  private long reportedNanos;
  private long total;
  private volatile String notice;

  void count(String where, String kind, long number) {
    // The total covers this run only.
    total += where.equals(EARLIER_RUN) ? 0 : number;
    // Two lookups instead of computeIfAbsent: the listener thread may call this for every record.
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

  /** Returns the number of all dropped records of this run. */
  long total() {
    return total;
  }

  boolean isDue(long nowNanos, boolean last) {
    return !unreported.isEmpty()
        && !accountUnderWay
        && (last || !reportedBefore || nowNanos - reportedNanos >= INTERVAL_NANOS);
  }

  /** Returns the account of one place; its drops count as reported from now on. */
  Account account(long nowNanos) {
    String where = unreported.keySet().iterator().next();
    Map<String, long[]> counts = unreported.remove(where);
    accountUnderWay = true;
    reportedBefore = true;
    // If there is another place, its account is due at once.
    reportedNanos = unreported.isEmpty() ? nowNanos : nowNanos - INTERVAL_NANOS;
    notice = where + " dropped " + text(counts);
    return new Account(where, counts);
  }

  /** Restores the counts of an account that was lost before a sidecar acknowledged it. */
  void takeBack(Account lost) {
    Map<String, long[]> counts = unreported.computeIfAbsent(lost.where, place -> new LinkedHashMap<>());
    lost.counts.forEach((kind, number) -> counts.computeIfAbsent(kind, unknown -> new long[1])[0] += number[0]);
  }

  /** Call when an account leaves the queue, so that the next one may enter. */
  void accountLeft() {
    accountUnderWay = false;
  }

  /** Returns the latest account as text for the log, once, or null. May be called without the lock. */
  String takeNotice() {
    String last = notice;
    if (last != null) {
      notice = null;
    }
    return last;
  }

  /** Returns the unreported drops by kind of record. */
  Map<String, Long> unreportedByKind() {
    Map<String, Long> all = new TreeMap<>();
    for (Map<String, long[]> place : unreported.values()) {
      place.forEach((kind, number) -> all.merge(kind, number[0], Long::sum));
    }
    return all;
  }

  /** Returns the unreported drops as text; empty if there are none. */
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
