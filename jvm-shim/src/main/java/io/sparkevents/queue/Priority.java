package io.sparkevents.queue;

/** Which records a full queue drops first: the lowest. */
public enum Priority {
  ROUTINE,
  LIFECYCLE,
  /** Tells what was lost: never given up itself. */
  ACCOUNT
}
