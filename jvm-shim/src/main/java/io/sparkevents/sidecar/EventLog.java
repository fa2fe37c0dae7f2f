package io.sparkevents.sidecar;

import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Events for the driver's own log, as a reporter of type log hands them over. They have a logger and a thread of
 * their own: an appender that is slow or hangs must hold up neither the sidecar's answers, and with them Spark, nor
 * the end of the application. What it cannot take in time is dropped, and the log says how many.
 */
public final class EventLog {
  /** The name by which users choose level and appenders. */
  static final String LOGGER = "io.sparkevents.Events";

  public static final int CAPACITY = 4_096;
  private static final String[] END = {};

  private final Logger log;
  private final BlockingQueue<String[]> waiting = new LinkedBlockingQueue<>(CAPACITY);
  private Thread writer;
  private long dropped;
  private boolean closed;
  /** Set when close() stops waiting; the writer ends once the queue is empty. */
  private volatile boolean abandoned;

  public EventLog() {
    this(LoggerFactory.getLogger(LOGGER));
  }

  public EventLog(Logger log) {
    this.log = log;
  }

  /** Takes one event in, without ever waiting. */
  public synchronized void receive(Map<?, ?> answer) {
    if (writer == null) {
      Thread starting = new Thread(this::write, "spark-events-log");
      starting.setDaemon(true);
      starting.start();
      // Only now: where the system has no thread left, the next event tries again.
      writer = starting;
    }
    String[] event = {String.valueOf(answer.get("level")), String.valueOf(answer.get("message"))};
    if (closed || !waiting.offer(event)) {
      dropped++;
    }
  }

  /**
   * All has been received: waits, at most so long, until it is written.
   *
   * @return how many events may not be in the log
   */
  public long close(long millis) throws InterruptedException {
    Thread last;
    synchronized (this) {
      closed = true;
      last = writer;
    }
    if (last != null) {
      long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(millis);
      if (waiting.offer(END, millis, TimeUnit.MILLISECONDS)) {
        last.join(Math.max(1, TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime())));
      }
      abandoned = true;
      // Wakes a writer that has emptied the queue before it saw the flag.
      waiting.offer(END);
    }
    return waiting.stream().filter(event -> event != END).count() + takeDropped();
  }

  private synchronized long takeDropped() {
    long untold = dropped;
    dropped = 0;
    return untold;
  }

  private void write() {
    try {
      for (String[] event = waiting.take(); event != END; event = waiting.take()) {
        write(event[0], event[1]);
        sayDropped();
        if (abandoned && waiting.isEmpty()) {
          return;
        }
      }
      sayDropped();
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
    }
  }

  private void sayDropped() {
    long untold = takeDropped();
    if (untold > 0) {
      try {
        log.warn("spark-events: the driver's log is too slow, or refuses them: {} events are not in it", untold);
      } catch (Throwable broken) {
        synchronized (this) {
          dropped += untold;
        }
      }
    }
  }

  private void write(String level, String message) {
    try {
      switch (level) {
        case "FATAL":
        case "ERROR":
          log.error("{}", message);
          break;
        case "WARN":
          log.warn("{}", message);
          break;
        case "DEBUG":
          log.debug("{}", message);
          break;
        case "TRACE":
          log.trace("{}", message);
          break;
        default:
          log.info("{}", message);
      }
    } catch (Throwable broken) {
      // An appender that throws must not end the writer thread.
      synchronized (this) {
        dropped++;
      }
    }
  }
}
