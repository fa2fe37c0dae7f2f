package io.sparkevents.listener;

/** Number of jobs or stage attempts that ended, and how many of them failed or were cancelled. */
final class EndedWork {
  long all;
  long failed;
  long cancelled;

  /** @param failure message of the exception; null if the work succeeded */
  void add(String failure) {
    boolean isCancelled = Cancellation.is(failure);
    all++;
    cancelled += isCancelled ? 1 : 0;
    failed += failure != null && !isCancelled ? 1 : 0;
  }
}
