package io.sparkevents;

/**
 * What the {@link HandoffQueue} holds, used under its lock: records that wait to be sent, records that were sent and are
 * not acknowledged, what is known of those that have left, and what was dropped.
 *
 * <p>Both kinds count against the capacity. When there is no room, a record that the sidecar has already been given
 * makes it first (it lives on in the sidecar); only when the sidecar does not even read is a record dropped, the least
 * worthy and oldest first, and counted.
 */
final class Holdings {
  /** So much room is kept free where that costs nothing: a burst does not have to make it record by record. */
  private static final int AHEAD = 128;

  final int capacity;
  final Pending pending = new Pending();
  final Sent sent;
  final Context context = new Context();
  final Drops drops = new Drops();
  /** Whether anything was dropped here since somebody has set this to false. */
  boolean hasDropped;

  private final int ahead;
  private final long mostBytes;

  /**
   * @param mostTraces of how many records that have made room it is remembered that they may be lost
   * @param mostBytes how much is kept at most of what was written, and twice that of what waits, however few records
   */
  Holdings(int capacity, int mostTraces, long mostBytes) {
    this.capacity = capacity;
    this.mostBytes = mostBytes;
    ahead = Math.min(AHEAD, capacity / 8);
    sent = new Sent(mostTraces);
  }

  int size() {
    return pending.size() + sent.size();
  }

  /** Whether there is room, or some was made at the cost of what is worth no more. */
  boolean hasRoomFor(Record record) {
    boolean hasRoom = hasRoom() || forgetWritten() || dropLeast(record.worth);
    // Only for one that is known to need it. Twice as much as of what was sent, which may all come back.
    while (hasRoom && record.size() > 0 && !pending.isEmpty() && pending.bytes() + record.size() > 2 * mostBytes) {
      hasRoom = dropLeast(record.worth);
    }
    return hasRoom;
  }

  private boolean dropLeast(Record.Worth worth) {
    Record least = pending.pollLeast(worth);
    if (least != null) {
      drop(least);
    }
    return least != null;
  }

  private boolean hasRoom() {
    return size() < capacity;
  }

  /** Makes at most so much room before it is asked for; returns whether there is more to be done. */
  boolean makeRoomAhead(int most) {
    int done = 0;
    while (done < most && (size() > capacity - ahead || sent.bytes() > mostBytes) && forgetWritten()) {
      done++;
    }
    return done == most;
  }

  /** The oldest that is in the pipe makes room: it lives on in the sidecar. */
  private boolean forgetWritten() {
    Record written = sent.evict();
    if (written != null) {
      context.apply(written);
    }
    return written != null;
  }

  void drop(Record record) {
    if (record.worth != Record.Worth.ACCOUNT) {
      drops.count(Drops.HANDOFF, record.kind, 1);
      hasDropped = true;
    }
    // The record is lost as an event, not as knowledge: a query that started still runs.
    context.apply(record);
  }

  /** The record cannot be sent, now or ever. */
  void giveUp(Record record) {
    if (sent.remove(record)) {
      if (record.worth != Record.Worth.ACCOUNT) {
        drops.count(Drops.UNWRITABLE, record.kind, 1);
      }
      context.apply(record);
    }
  }

  /** What was dropped, as a record that is to be sent; null where there is nothing to tell, or no room. */
  Record account(boolean last) {
    long now = System.nanoTime();
    boolean isDue = drops.isDue(now, last && pending.isEmpty());
    return isDue && (hasRoom() || forgetWritten()) ? drops.account(now) : null;
  }

  /** The next to be sent, which counts as sent from now on; there is one. */
  Record send() {
    Record record = pending.pollFirst();
    if (record.worth == Record.Worth.ACCOUNT) {
      drops.accountLeft();
    }
    sent.add(record);
    return record;
  }

  /** What was sent up to {@code seq} is over; at most so much at once. Returns whether there is more. */
  boolean forgetThrough(long seq, int most) {
    Record record = null;
    for (int done = 0; done < most && (record = sent.pollThrough(seq)) != null; done++) {
      context.apply(record);
    }
    return record != null;
  }

  /** The sidecar is gone: what was sent is to be sent again, what had made room is lost. */
  void rewind() {
    for (Record record = sent.pollLast(); record != null; record = sent.pollLast()) {
      pending.addFirst(record);
    }
    sent.loseTraces(kind -> drops.count(Drops.SIDECAR, kind, 1), drops::takeBack);
    sent.startAnew();
  }

  /** There is no sidecar any more: what waits is dropped. Returns of how many that were sent nobody knows the end. */
  long close() {
    for (Record record = pending.pollFirst(); record != null; record = pending.pollFirst()) {
      if (record instanceof Drops.Account) {
        drops.takeBack((Drops.Account) record);
      } else {
        drop(record);
      }
    }
    long[] unconfirmed = {sent.size()};
    sent.loseTraces(kind -> unconfirmed[0]++, drops::takeBack);
    while (!sent.isEmpty()) {
      sent.pollLast();
    }
    return unconfirmed[0];
  }
}
