package io.sparkevents.listener;

import io.sparkevents.queue.BoundedMap;
import java.util.Deque;
import java.util.Map;
import java.util.UUID;
import org.apache.spark.sql.SparkSession;

/**
 * Finds queries whose batches may be committed after their progress reports, and the batch that is committed.
 *
 * <p>With asynchronous progress tracking ({@code asyncProgressTrackingEnabled}), another thread writes the entries of
 * {@code commits/}, and only some batches have an entry. Spark has no public API that returns the option or the writes,
 * and the progress report is the same. Therefore, the class reads Spark's object for the query's {@code commits/}, which
 * notes each entry in memory after it has written it. If a build of Spark lacks the object, a query counts as
 * asynchronous if one of Spark's writer threads, whose names contain no query's id, lives in the driver.
 *
 * <p>Used by the listener thread only, which looks for the object and the threads once for each run.
 */
final class ProgressTracking {
  private static final String WRITER = "async-log-write";
  private static final String QUERY = "stream execution thread for ";
  private static final Tracking SYNCHRONOUS = new Tracking(false, null);

  private final Map<String, Tracking> decided;
  /** State of all sessions of the application; null before the first query. */
  private Object state;

  /** How a run tracks its progress; {@code written} is null if it is synchronous or Spark's object is unknown. */
  private static final class Tracking {
    final boolean asynchronous;
    final Deque<?> written;

    Tracking(boolean asynchronous, Deque<?> written) {
      this.asynchronous = asynchronous;
      this.written = written;
    }
  }

  ProgressTracking(int mostRuns) {
    decided = new BoundedMap<>(mostRuns);
  }

  /** Returns whether commits may follow the progress reports of a run; null if the run's thread has already ended. */
  Boolean isAsynchronous(UUID queryId, UUID runId) {
    Tracking known = decided.get(runId.toString());
    if (known == null) {
      known = look(queryId, runId);
      if (known != null) {
        decided.put(runId.toString(), known);
      }
    }
    return known == null ? null : known.asynchronous;
  }

  /**
   * Returns the batch of the last entry in {@code commits/} of a run with asynchronous tracking, which also commits all
   * earlier batches; null if it is unknown.
   */
  Long committedThrough(String runId) {
    Tracking known = decided.get(runId);
    Object last = known == null || known.written == null ? null : known.written.peekLast();
    return last instanceof Long ? (Long) last : null;
  }

  void forget(String runId) {
    decided.remove(runId);
  }

  private Tracking look(UUID queryId, UUID runId) {
    Object commits = commitLog(queryId, runId);
    if (commits != null && commits.getClass().getSimpleName().equals("CommitLog")) {
      return SYNCHRONOUS;
    }
    try {
      if (commits != null) {
        return new Tracking(true, (Deque<?>) call(commits, "writtenToDurableStorage"));
      }
    } catch (ReflectiveOperationException | LinkageError | ClassCastException changed) {
      // The threads decide.
    }
    Boolean asynchronous = lookAtThreads(runId.toString());
    return asynchronous == null ? null : asynchronous ? new Tracking(true, null) : SYNCHRONOUS;
  }

  /** Returns Spark's object for the query's {@code commits/}; null if the run has ended or a build of Spark lacks it. */
  private Object commitLog(UUID queryId, UUID runId) {
    try {
      SparkSession session = ApplicationRecords.orNull(SparkSession.getDefaultSession());
      // A program may clear the default session.
      state = session == null ? state : call(session, "sharedState");
      if (state == null) {
        return null;
      }
      Map<?, ?> running = (Map<?, ?>) call(state, "activeStreamingQueries");
      Object execution = running.get(queryId);
      return execution == null || !runId.equals(call(execution, "runId")) ? null : call(execution, "commitLog");
    } catch (ReflectiveOperationException | LinkageError | ClassCastException changed) {
      return null;
    }
  }

  private static Object call(Object object, String method) throws ReflectiveOperationException {
    return object.getClass().getMethod(method).invoke(object);
  }

  private static Boolean lookAtThreads(String runId) {
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
