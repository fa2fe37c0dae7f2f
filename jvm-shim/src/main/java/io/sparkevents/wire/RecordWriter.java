package io.sparkevents.wire;

import io.sparkevents.config.Settings;
import io.sparkevents.listener.Failures;
import io.sparkevents.queue.DropCounters;
import io.sparkevents.queue.Record;
import io.sparkevents.queue.RecordQueue;
import io.sparkevents.queue.Timeout;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Writes the queued records as the lines that Python reads, in the sidecar or in-process. One thread at a time may use
 * it.
 */
public final class RecordWriter {
  private static final Logger LOG = LoggerFactory.getLogger(RecordWriter.class);
  private static final int PROTOCOL = 1;
  private static final byte[] RESTORED = "{\"kind\":\"restored\",\"record\":".getBytes(StandardCharsets.US_ASCII);
  private static final byte[] END = "}\n".getBytes(StandardCharsets.US_ASCII);

  private final Settings settings;
  private final String application;
  private final RecordQueue queue;
  private final Timeout timeout;
  private final List<Record> next = new ArrayList<>();
  private final ListenerBusDrops listenerBus = new ListenerBusDrops();
  /** Kinds of records for which a write error has already been logged. */
  private final Set<String> unwritableKinds = new HashSet<>();

  /**
   * @param application the application's name
   * @param timeout timeout of the application's shutdown
   */
  public RecordWriter(Settings settings, String application, RecordQueue queue, Timeout timeout) {
    this.settings = settings;
    this.application = application;
    this.queue = queue;
    this.timeout = timeout;
  }

  /**
   * Returns the first line to Python.
   *
   * @param sequence number of the next event
   * @param before counters of the earlier sidecars' reporters
   * @param memory what an earlier sidecar asked to remember
   */
  public byte[] hello(long sequence, Map<String, Map<String, Long>> before, String memory) throws IOException {
    String version = version();
    return Record.json(json -> {
      Record.write(json, "kind", "hello", "protocol", PROTOCOL, "version", version, "application", application);
      Record.write(json, "sequence", sequence, "driver", process(), "before", before);
      Record.write(json, "dropped", queue.drops.total(), "memory", memory);
      Record.write(json, "settings", settings.given.all());
    });
  }

  /**
   * Returns the version that the build wrote into the jar; empty if these classes are not from a jar.
   *
   * <p>The version is a resource, because an application's fat jar does not keep the manifest of this jar.
   */
  private static String version() throws IOException {
    try (InputStream in = RecordWriter.class.getResourceAsStream("/io/sparkevents/version")) {
      return in == null ? "" : new BufferedReader(new InputStreamReader(in, StandardCharsets.UTF_8)).readLine();
    }
  }

  /** Returns the process id of this JVM, or 0 if it is unknown. Java 8 has no public method for the id. */
  private static long process() {
    try {
      return Long.parseLong(ManagementFactory.getRuntimeMXBean().getName().split("@")[0]);
    } catch (RuntimeException | LinkageError unknown) {
      return 0;
    }
  }

  /**
   * Writes the restore state for a sidecar that is starting.
   *
   * <p>The sidecar receives the restore state before it is ready. If the driver dies while the sidecar starts, only the
   * sidecar can report the death.
   */
  public void restore(OutputStream pipe) throws IOException {
    for (Record known : queue.rewind()) {
      byte[] line = lineOrNull(known);
      if (line != null) {
        pipe.write(RESTORED);
        pipe.write(line, 0, line.length - 1); // without its newline
        pipe.write(END);
      }
    }
  }

  /**
   * Writes the next records; waits up to {@code millis} for a record.
   *
   * @return whether it wrote the goodbye message, which is the last line
   */
  public boolean next(OutputStream pipe, long millis) throws IOException, InterruptedException {
    next.clear();
    if (System.nanoTime() - listenerBus.dueNanos >= 0 || queue.isFinished()) {
      listenerBus.look(queue);
    }
    queue.take(next, millis);
    for (Record record : next) {
      if (record instanceof DropCounters.Account) {
        log((DropCounters.Account) record);
      }
      byte[] line = lineOrNull(record);
      if (line == null) {
        queue.dropUnwritable(record);
      } else {
        pipe.write(line);
      }
    }
    if (!next.isEmpty() || !queue.isFinished()) {
      return false;
    }
    pipe.write(Record.json(json -> {
      Record.write(json, "kind", "goodbye");
      Record.write(json, "within_ms", timeout.millisLeft(), "dropped", queue.drops.total());
    }));
    return true;
  }

  /** Enqueues reports of all drops so far; thread-safe. */
  public void reportDrops() {
    listenerBus.look(queue);
    queue.reportDrops();
  }

  /** Returns the record's line; null if the user's values throw an exception. */
  private byte[] lineOrNull(Record record) {
    try {
      return record.line();
    } catch (Throwable unwritable) {
      if (unwritableKinds.add(record.kind)) {
        LOG.warn(
            "[spark-events] cannot write a record of kind {}; dropping and counting it;"
                + " later losses of this kind are not logged: {}",
            record.kind,
            Failures.describe(unwritable));
      }
      return null;
    }
  }

  private void log(DropCounters.Account drops) {
    switch (drops.where) {
      case DropCounters.HANDOFF:
        LOG.warn(
            "[spark-events] the record queue is full (spark.events.dispatcher.queue.size = {}, or the limit of the heap);"
                + " raise this key or the driver's memory; dropped: {}",
            queue.capacity,
            drops.counts);
        break;
      case DropCounters.SIDECAR:
        LOG.warn("[spark-events] a sidecar died with records that it had not acknowledged; they are lost: {}", drops.counts);
        break;
      case DropCounters.UNWRITABLE:
        // The first loss of each kind is logged with its cause.
        break;
      default:
        LOG.warn(
            "[spark-events] Spark's listener bus dropped {} before they reached spark-events;"
                + " raise spark.scheduler.listenerbus.eventqueue.capacity",
            drops.counts);
    }
  }
}
