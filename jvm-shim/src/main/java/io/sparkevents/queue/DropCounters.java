package io.sparkevents.queue;

import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;

/**
 * Counts dropped records by place and kind, and reports the counts as records.
 *
 * <p>Such a record is called an account. Like any other record, an account has a seq, is sent again to a new
 * sidecar, and is acknowledged, so no count is lost. The first drop is reported immediately; later drops are reported
 * at most every ten seconds.
 */
public final class DropCounters {
  /** Records that were lost between the listener and the sidecar. */
  public static final String HANDOFF = "handoff";
  /** Records that were evicted from the queue and lost when the sidecar that had received them died. */
  public static final String SIDECAR = "sidecar";
  /** Spark events that could not be recorded, and records that could not be written as JSON. */
  public static final String UNWRITABLE = "unwritable";
  /** Events that Spark's listener bus did not deliver to its listeners. */
  public static final String LISTENER_QUEUE = "spark-listener-queue";

  private static final long INTERVAL_NANOS = TimeUnit.SECONDS.toNanos(10);

  /** Record that reports the drops at one place. */
  public static final class Account extends Record {
    public final String where;
    public final Map<String, Long> counts;

    private Account(String where, Map<String, Long> counts) {
      super("dropped", Record.Priority.ACCOUNT, json -> Record.write(json, "where", where, "records", counts));
      this.where = where;
      this.counts = counts;
    }
  }

  private final Object lock;
  private final WriterSignal writer;
  /**
   * Counts by place, then kind. Each count is an array of length 1, and the kinds are not sorted, because boxing and
   * sorting would slow down the listener thread.
   */
  private final Map<String, Map<String, long[]>> unreported = new LinkedHashMap<>();
  private long dueNanos = System.nanoTime();
  private long total;
  private long unconfirmed;

  /** @param lock the queue's lock; methods without {@code synchronized} need it */
  DropCounters(Object lock, WriterSignal writer) {
    this.lock = lock;
    this.writer = writer;
  }

  /** Counts records that were lost outside the queue; an account reports them like the queue's own drops. */
  public void count(String where, String kind, long records) {
    synchronized (lock) {
      add(where, kind, records);
      writer.wake();
    }
  }

  /** Returns the number of records of this run that are known to be lost. */
  public long total() {
    synchronized (lock) {
      return total;
    }
  }

  /**
   * Returns the losses that no sidecar has reported, by kind of record; call this method after {@link
   * RecordQueue#close}. {@code unconfirmed} is the number of records that a sidecar received and did not acknowledge.
   */
  public Map<String, Long> unreported() {
    synchronized (lock) {
      Map<String, Long> all = new TreeMap<>();
      unreported.values().forEach(place -> place.forEach((kind, count) -> all.merge(kind, count[0], Long::sum)));
      if (unconfirmed > 0) {
        all.put("unconfirmed", unconfirmed);
      }
      return all;
    }
  }

  void add(String where, String kind, long records) {
    total += records;
    addUnreported(where, kind, records);
  }

  private void addUnreported(String where, String kind, long records) {
    Map<String, long[]> counts = unreported.get(where);
    if (counts == null) {
      counts = new HashMap<>();
      unreported.put(where, counts);
    }
    long[] count = counts.get(kind);
    if (count == null) {
      counts.put(kind, new long[] {records});
    } else {
      count[0] += records;
    }
  }

  /** Restores the counts of an account that was lost before a sidecar had acknowledged it. */
  void takeBack(Account lost) {
    lost.counts.forEach((kind, records) -> addUnreported(lost.where, kind, records));
  }

  /** Counts records of which it is unknown whether the last sidecar has delivered their events. */
  void addUnconfirmed(long records) {
    unconfirmed += records;
  }

  /** Makes the next account due immediately. */
  void reportNow() {
    dueNanos = System.nanoTime();
  }

  /** Whether there are unreported drops, and they must be reported now. */
  boolean isDue(boolean last) {
    return !unreported.isEmpty() && (last || System.nanoTime() - dueNanos >= 0);
  }

  /** Returns an {@link Account} of the unreported drops at one place, and marks these drops as reported. */
  Account account() {
    String where = unreported.keySet().iterator().next();
    Map<String, Long> counts = new TreeMap<>();
    unreported.remove(where).forEach((kind, count) -> counts.put(kind, count[0]));
    Account account = new Account(where, counts);
    if (unreported.isEmpty()) {
      // If another place has unreported drops, the account of these drops is due immediately.
      dueNanos = System.nanoTime() + INTERVAL_NANOS;
    }
    return account;
  }
}
