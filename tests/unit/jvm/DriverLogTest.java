package io.sparkevents;

import static io.sparkevents.Checks.is;

import io.sparkevents.wire.DriverLog;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.slf4j.Logger;

/** Tests of events in the driver's log. */
final class DriverLogTest {
  /** Logger that records the level and text of each call. Each call waits for a permit of the gate. */
  static Logger logger(ConcurrentLinkedQueue<String> logged, Semaphore gate) {
    return (Logger)
        Proxy.newProxyInstance(
            DriverLogTest.class.getClassLoader(),
            new Class<?>[] {Logger.class},
            (self, method, arguments) -> {
              gate.acquire();
              logged.add(method.getName() + " " + arguments[arguments.length - 1]);
              return null;
            });
  }

  private static Map<String, String> event(String level, String message) {
    Map<String, String> answer = new HashMap<>();
    answer.put("level", level);
    answer.put("message", message);
    return answer;
  }

  /** Before the log is closed, all events are logged in order and with their level. */
  @Test
  void eventsAreLogged() throws Exception {
    ConcurrentLinkedQueue<String> logged = new ConcurrentLinkedQueue<>();
    DriverLog events = new DriverLog(logger(logged, new Semaphore(100)));
    for (String level : Arrays.asList("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL", "NEWER")) {
      events.receive(event(level, "{} " + level));
    }
    is(events.close(10_000), 0);
    is(
        logged,
        "[trace {} TRACE, debug {} DEBUG, info {} INFO, warn {} WARN, error {} ERROR, error {} FATAL, info {} NEWER]");
  }

  /** A hanging appender blocks neither later events nor the shutdown. close() returns the number of missing events. */
  @Test
  void aHangingAppenderBlocksNoThread() throws Exception {
    ConcurrentLinkedQueue<String> logged = new ConcurrentLinkedQueue<>();
    Semaphore gate = new Semaphore(0);
    DriverLog events = new DriverLog(logger(logged, gate));
    int more = 500;
    for (int n = 0; n < DriverLog.CAPACITY + more; n++) {
      events.receive(event("INFO", "event " + n));
    }
    long start = System.nanoTime();
    long missing = events.close(100);
    long took = (System.nanoTime() - start) / 1_000_000;
    if (took > 30_000) {
      throw new AssertionError("the end took " + took + " ms");
    }
    // The appender may hold one of the events.
    if (missing < DriverLog.CAPACITY + more - 1) {
      throw new AssertionError("only " + missing + " are reported missing");
    }
  }

  /** If events are dropped while the log is slow, the log reports them when it works again. */
  @Test
  void droppedEventsAreReportedInTheLog() throws Exception {
    ConcurrentLinkedQueue<String> logged = new ConcurrentLinkedQueue<>();
    Semaphore gate = new Semaphore(0);
    DriverLog events = new DriverLog(logger(logged, gate));
    for (int n = 0; n < DriverLog.CAPACITY + 500; n++) {
      events.receive(event("INFO", "event " + n));
    }
    gate.release(1_000_000);
    is(events.close(10_000), 0);
    int written = 0;
    long dropped = 0;
    for (String one : logged) {
      if (one.startsWith("info event")) {
        written++;
      } else {
        dropped += Long.parseLong(one.substring("warn ".length()));
      }
    }
    is(written + dropped, DriverLog.CAPACITY + 500);
    is(dropped > 0, true);
  }

  /** Logger whose first {@code times} calls throw. */
  private static Logger broken(ConcurrentLinkedQueue<String> logged, AtomicInteger times) {
    return (Logger)
        Proxy.newProxyInstance(
            DriverLogTest.class.getClassLoader(),
            new Class<?>[] {Logger.class},
            (self, method, arguments) -> {
              if (times.getAndDecrement() > 0) {
                throw new StackOverflowError("an appender");
              }
              logged.add(method.getName() + " " + arguments[arguments.length - 1]);
              return null;
            });
  }

  /** If an appender throws, its event is lost. The log reports the loss when the appender works again. */
  @Test
  void anAppenderThatThrowsLosesOneEvent() throws Exception {
    ConcurrentLinkedQueue<String> logged = new ConcurrentLinkedQueue<>();
    DriverLog events = new DriverLog(broken(logged, new AtomicInteger(2)));
    for (int n = 1; n <= 3; n++) {
      events.receive(event("INFO", "event " + n));
    }
    is(events.close(10_000), 0);
    // The first call and the first report of the loss throw.
    is(logged, "[info event 2, warn 1, info event 3]");
  }

  /** The writer thread exits after writing all events, even if close() has returned. */
  @Test
  void aSlowLogLeavesNoThread() throws Exception {
    ConcurrentLinkedQueue<String> logged = new ConcurrentLinkedQueue<>();
    Semaphore gate = new Semaphore(0);
    Set<Thread> before = Thread.getAllStackTraces().keySet();
    for (int waiting : new int[] {1, DriverLog.CAPACITY + 100}) {
      DriverLog events = new DriverLog(logger(logged, gate));
      for (int n = 0; n < waiting; n++) {
        events.receive(event("INFO", "event " + n));
      }
      is(events.close(10) > 0 || waiting == 1, true);
    }
    List<Thread> writers = new ArrayList<>();
    for (Thread thread : Thread.getAllStackTraces().keySet()) {
      if (thread.getName().equals("spark-events-log") && !before.contains(thread)) {
        writers.add(thread);
      }
    }
    gate.release(1_000_000);
    for (Thread writer : writers) {
      writer.join(60_000);
      is(writer.isAlive(), false);
    }
    is(writers.size(), 2);
  }
}
