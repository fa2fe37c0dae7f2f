package io.sparkevents.listener;

import io.sparkevents.queue.BoundedMap;
import java.util.Map;

/**
 * Finds queries whose batches may be committed after their progress reports.
 *
 * <p>With asynchronous progress tracking ({@code asyncProgressTrackingEnabled}), another thread writes the entries of
 * {@code commits/}, and only some batches have an entry. Spark has no public API that returns this option, and the
 * progress report is the same. Spark's writer threads have a name, but no query's id. Therefore, a query counts as
 * asynchronous if such a thread lives in the driver. Used by the listener thread only, which looks at the threads once
 * for each run.
 */
final class ProgressTracking {
  private static final String WRITER = "async-log-write";
  private static final String QUERY = "stream execution thread for ";

  private final Map<String, Boolean> decided;

  ProgressTracking(int mostRuns) {
    decided = new BoundedMap<>(mostRuns);
  }

  /** Returns whether commits may follow the progress reports of a run; null if the run's thread has already ended. */
  Boolean isAsynchronous(String runId) {
    Boolean known = decided.get(runId);
    if (known == null) {
      known = look(runId);
      if (known != null) {
        decided.put(runId, known);
      }
    }
    return known;
  }

  void forget(String runId) {
    decided.remove(runId);
  }

  private static Boolean look(String runId) {
    ThreadGroup root = Thread.currentThread().getThreadGroup();
    while (root.getParent() != null) {
      root = root.getParent();
    }
    // Names only: reading stacks would stop the threads. The margin is for threads that start meanwhile.
    Thread[] threads = new Thread[root.activeCount() * 2 + 64];
    int count = root.enumerate(threads);
    boolean runs = false;
    for (int i = 0; i < count; i++) {
      String name = threads[i].getName();
      if (name.startsWith(WRITER)) {
        return true;
      }
      runs |= name.startsWith(QUERY) && name.contains(runId);
    }
    return runs ? false : null;
  }
}
