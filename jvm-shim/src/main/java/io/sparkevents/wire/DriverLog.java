package io.sparkevents.wire;

import io.sparkevents.queue.Threads;
import java.util.Map;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Writes the events of {@code log} reporters to the driver's own log, with a separate logger and thread.
 *
 * <p>A slow or hanging appender therefore blocks neither the sidecar's messages, for which Spark may wait, nor the
 * application's shutdown. Events beyond {@link #CAPACITY} are dropped, and a warning in the log states their number.
 */
public final class DriverLog {
  private static final Logger LOG = LoggerFactory.getLogger(DriverLog.class);
  /** Logger name with which users configure level and appenders. */
  static final String LOGGER = "io.sparkevents.Events";

  public static final int CAPACITY = 4_096;

  private final Logger log;
  private final AtomicLong dropped = new AtomicLong();
  /** Thread that writes the events; it starts with the first event. */
  private final ThreadPoolExecutor writer =
      new ThreadPoolExecutor(
          1,
          1,
          0,
          TimeUnit.SECONDS,
          new LinkedBlockingQueue<>(CAPACITY),
          work -> Threads.daemon("log", work),
          (event, full) -> dropped.incrementAndGet());

  public DriverLog() {
    this(LoggerFactory.getLogger(LOGGER));
  }

  public DriverLog(Logger log) {
    this.log = log;
  }

  /** Enqueues one event without waiting; a full queue drops the event. */
  public void receive(Map<?, ?> message) {
    String level = String.valueOf(message.get("level"));
    String text = String.valueOf(message.get("message"));
    writer.execute(() -> {
      try {
        write(log, level, text);
      } catch (Throwable broken) {
        // Catch every error: an appender that throws must not end the writer thread.
        dropped.incrementAndGet();
      }
      logDropped();
    });
  }

  /**
   * Stops accepting events, and waits up to {@code millis} until the queued events are written; warns if some may not be.
   *
   * @return the number of events that may be missing from the log
   */
  public long close(long millis) throws InterruptedException {
    writer.shutdown();
    writer.awaitTermination(millis, TimeUnit.MILLISECONDS);
    long missing = writer.getQueue().size() + dropped.getAndSet(0);
    if (missing > 0) {
      LOG.warn(
          "[spark-events] {} events may be missing from the driver's log because its appender was too slow;"
              + " check the appender of the logger {}",
          missing,
          LOGGER);
    }
    return missing;
  }

  private void logDropped() {
    long unreported = dropped.getAndSet(0);
    if (unreported > 0) {
      try {
        log.warn(
            "[spark-events] {} events are missing from this log because its appender is slow or throws;"
                + " check the appender of the logger "
                + LOGGER,
            unreported);
      } catch (Throwable broken) {
        dropped.addAndGet(unreported);
      }
    }
  }

  /** Logs a message with the level's name from an event or from Python's logging. */
  static void write(Logger log, String level, String message) {
    switch (level) {
      case "FATAL":
      case "CRITICAL":
      case "ERROR":
        log.error("{}", message);
        break;
      case "WARN":
      case "WARNING":
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
  }
}
