package io.sparkevents;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.concurrent.ConcurrentLinkedQueue;

/** Runs the checks of the other classes, each a method of the name check…; test_shim.py starts it. */
public final class Checks {
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

  /** While the work is done, its thread can have no other one, as where the system gives no more. */
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

  /** Prints for each check of the classes that are named how it went. */
  public static void main(String[] classes) throws Exception {
    for (String name : classes) {
      for (Method method : Class.forName("io.sparkevents." + name).getDeclaredMethods()) {
        if (method.getName().startsWith("check")) {
          try {
            method.invoke(null);
            System.out.println(method.getName() + "\tok");
          } catch (InvocationTargetException failed) {
            System.out.println(method.getName() + "\t" + failed.getCause());
          }
        }
      }
    }
  }
}
