package io.sparkevents;

import io.sparkevents.config.Settings;
import io.sparkevents.listener.ApplicationEnd;
import io.sparkevents.listener.RecordSink;
import io.sparkevents.queue.Record;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.function.Consumer;
import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.core.LogEvent;
import org.apache.logging.log4j.core.Logger;
import org.apache.logging.log4j.core.appender.AbstractAppender;
import org.apache.logging.log4j.core.config.Property;
import org.apache.spark.SparkConf;

/** Assertions and threads that several tests use. */
final class Checks {
  static void is(Object actual, Object expected) {
    if (!String.valueOf(actual).equals(String.valueOf(expected))) {
      throw new AssertionError("expected " + expected + ", got " + actual);
    }
  }

  /** Destination whose queue the test reads. */
  static final class Recorder extends RecordSink {
    private final Consumer<ApplicationEnd> ends;

    Recorder(SparkConf conf, Consumer<ApplicationEnd> ends) {
      super(Settings.read(conf, Collections.emptyMap()));
      this.ends = ends;
    }

    /** Returns the records since the last call. */
    List<Record> take() throws InterruptedException {
      return RecordQueueTest.takeAll(queue);
    }

    @Override
    protected boolean isEnding() {
      return false;
    }

    @Override
    public void end(ApplicationEnd end) {
      ends.accept(end);
    }
  }

  /** Returns what the logger of a class logs at WARN and above during {@code work}: the level and the message. */
  static List<String> logged(Class<?> type, Work work) throws Exception {
    List<String> logged = Collections.synchronizedList(new ArrayList<>());
    AbstractAppender appender =
        new AbstractAppender("checks", null, null, true, Property.EMPTY_ARRAY) {
          @Override
          public void append(LogEvent event) {
            logged.add(event.getLevel() + " " + event.getMessage().getFormattedMessage());
          }
        };
    appender.start();
    Logger logger = (Logger) LogManager.getLogger(type);
    logger.addAppender(appender);
    logger.setLevel(Level.WARN);
    try {
      work.run();
    } finally {
      logger.removeAppender(appender);
    }
    return logged;
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
