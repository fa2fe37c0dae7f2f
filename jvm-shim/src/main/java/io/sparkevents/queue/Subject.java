package io.sparkevents.queue;

/**
 * Entity of Spark that records describe: the application, a query run, a job or a stage attempt.
 *
 * <p>The class that creates the records gives all records of one entity the same subject, of one queue. The subject
 * itself contains the entity's part of the {@link RestoreState}. Thus the listener thread, which applies each record
 * that it drops, needs no search.
 */
public final class Subject {
  /** First of the newest records of each kind, which are linked; null if the restore state lacks the subject. */
  Record records;
  /** The lowest rank of the records; null if there are none. */
  Record.Rank rank;
  /** The newest record that has removed the subject; older records do not add the subject again. */
  long endSeq = -1;
  /** Neighbours in the restore state's list of this rank. */
  Subject previous;
  Subject next;
}
