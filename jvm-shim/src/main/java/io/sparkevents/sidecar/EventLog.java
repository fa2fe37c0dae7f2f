package io.sparkevents.sidecar;

import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Writes the events of {@code log} reporters to the driver's own log, on a separate logger and thread.
 *
 * <p>A slow or hanging appender blocks neither the sidecar's messages, on which Spark may wait, nor the end of the
 * application. Events beyond {@link #CAPACITY} are dropped, and a warning in the log gives their number.
 */
public final class EventLog {
  /** Logger name with which users configure level and appenders. */
  static final String LOGGER = "io.sparkevents.Events";

  public static final int CAPACITY = 4_096;
  private static final String[] END = {};

  private final Logger log;
  private final BlockingQueue<String[]> waiting = new LinkedBlockingQueue<>(CAPACITY);
  private Thread writer;
  private long dropped;
  private boolean closed;
  /** Set when close() stops waiting; the writer thread ends once the queue is empty. */
  private volatile boolean abandoned;

  public EventLog() {
    this(LoggerFactory.getLogger(LOGGER));
  }

  public EventLog(Logger log) {
    this.log = log;
  }

  /** Enqueues one event without waiting; a full queue drops the event. */
  public synchronized void receive(Map<?, ?> answer) {
    if (writer == null) {
      Thread starting = new Thread(this::write, "spark-events-log");
      starting.setDaemon(true);
      starting.start();
      // Assigned after start(): if the system has no thread left, the next event tries again.
      writer = starting;
    }
    String[] event = {String.valueOf(answer.get("level")), String.valueOf(answer.get("message"))};
    if (closed || !waiting.offer(event)) {
      dropped++;
    }
  }

  /**
   * Stops accepting events and waits up to {@code millis} until the writer thread has written the queued ones.
   *
   * @return the number of events that may be missing from the log
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
      // Wakes a writer thread that emptied the queue before it saw the flag.
      waiting.offer(END);
    }
    return waiting.stream().filter(event -> event != END).count() + takeDropped();
  }

  private synchronized long takeDropped() {
    long unreported = dropped;
    dropped = 0;
    return unreported;
  }

  private void write() {
    try {
      for (String[] event = waiting.take(); event != END; event = waiting.take()) {
        write(event[0], event[1]);
        logDropped();
        if (abandoned && waiting.isEmpty()) {
          return;
        }
      }
      logDropped();
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
    }
  }

  private void logDropped() {
    long unreported = takeDropped();
    if (unreported > 0) {
      try {
        log.warn(
            "spark-events: {} events are missing from this log because its appender is slow or throws;"
                + " check the appender of the logger "
                + LOGGER,
            unreported);
      } catch (Throwable broken) {
        synchronized (this) {
          dropped += unreported;
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
