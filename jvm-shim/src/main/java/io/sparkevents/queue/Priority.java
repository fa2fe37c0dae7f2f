package io.sparkevents.queue;

/** Order in which a full queue drops records: the lowest first. */
public enum Priority {
  ROUTINE,
  LIFECYCLE,
  /** Account of drops, which is never dropped itself. */
  ACCOUNT
}
