package io.sparkevents;

import java.util.concurrent.ConcurrentLinkedQueue;

/** Assertions and threads that several tests use. */
final class Checks {
  static void is(Object actual, Object expected) {
    if (!String.valueOf(actual).equals(String.valueOf(expected))) {
      throw new AssertionError("expected " + expected + ", got " + actual);
    }
  }

  interface Work {
    void run() throws Exception;
  }

  interface Doing {
    void run(java.nio.file.Path with) throws Exception;
  }

  static Thread start(ConcurrentLinkedQueue<Throwable> wrong, Work work) {
    Thread thread =
        new Thread(
            () -> {
              try {
                work.run();
              } catch (Throwable failure) {
                wrong.add(failure);
              }
            });
    thread.start();
    return thread;
  }

  static void takesAtMost(long millis, Work work) throws Exception {
    long start = System.nanoTime();
    work.run();
    long took = (System.nanoTime() - start) / 1_000_000;
    if (took > millis) {
      throw new AssertionError("took " + took + " ms");
    }
  }

  /** Runs {@code work} on a thread that cannot start other threads, as at the system's thread limit. */
  static void withoutThreads(Work work) throws Exception {
    InheritableThreadLocal<Object> none =
        new InheritableThreadLocal<Object>() {
          @Override
          protected Object childValue(Object parent) {
            throw new OutOfMemoryError("unable to create native thread");
          }
        };
    none.set(work);
    try {
      work.run();
    } finally {
      none.remove();
    }
  }
}
