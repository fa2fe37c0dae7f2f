package io.sparkevents;

import com.fasterxml.jackson.core.JsonGenerator;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Starts the sidecar, feeds it from the queue, starts it again when it dies, and ends it.
 *
 * <p>All of it happens on one daemon thread of its own. Nothing that goes wrong here reaches Spark:
 * the worst is that the queue is closed and records are dropped, which the driver's log says once.
 */
final class Sidecar {
  private static final Logger LOG = LoggerFactory.getLogger(Sidecar.class);
  private static final int PROTOCOL = 1;
  private static final long IDLE_MILLIS = 1_000;

  private final Settings settings;
  private final HandoffQueue queue;
  private final Thread supervisor = new Thread(this::run, "spark-events-sidecar");
  private final CountDownLatch firstStart = new CountDownLatch(1);
  private final CountDownLatch finishing = new CountDownLatch(1);
  private final Restarts restarts = new Restarts();

  private List<Interpreter> candidates;
  private volatile SidecarProcess process;
  private volatile String failure;
  private volatile boolean refused;
  private volatile long nextSequence = 1;
  private volatile long deadlineNanos = Long.MAX_VALUE;

  Sidecar(Settings settings, List<Interpreter> candidates, HandoffQueue queue) {
    this.settings = settings;
    this.candidates = candidates;
    this.queue = queue;
  }

  void start() {
    supervisor.setDaemon(true);
    supervisor.start();
  }

  /** Waits until the sidecar is ready; returns why it is not, or null. */
  String awaitStarted() throws InterruptedException {
    long patience = settings.startTimeoutMillis() * candidates.size() + 1_000;
    return firstStart.await(patience, TimeUnit.MILLISECONDS) ? failure : "it is not ready in time";
  }

  /** Everything has been offered: drains within the shutdown timeout, then ends the process. */
  void finish() throws InterruptedException {
    long patience = settings.shutdownTimeoutMillis();
    deadlineNanos = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(patience);
    queue.finish();
    finishing.countDown();
    supervisor.join(Math.max(1, patience));
    SidecarProcess last = process;
    if (supervisor.isAlive() && last != null) {
      LOG.warn("spark-events: the sidecar did not end within events.shutdown.timeout ({} ms)", patience);
      last.destroy();
    }
  }

  private void run() {
    try {
      supervise();
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
    } catch (Throwable defect) {
      failure = "a defect in the shim: " + defect;
      LOG.error("spark-events: no more events from this application, {}", failure, defect);
    } finally {
      long dropped = queue.close();
      SidecarProcess last = process;
      if (last != null) {
        last.closeInput();
        last.destroy();
      }
      if (dropped > 0 && failure == null) {
        LOG.warn("spark-events: {} records were dropped before the sidecar had them", dropped);
      }
      firstStart.countDown();
    }
  }

  private void supervise() throws InterruptedException {
    while (true) {
      process = launch();
      if (process == null) {
        LOG.error("spark-events: no events will be reported{}. {}",
            settings.required() ? "" : ", the job goes on without them",
            failure);
        return;
      }
      firstStart.countDown();
      if (feed(process) && drained(process)) {
        return;
      }
      process.destroy();
      process.awaitExit(1_000);
      if (millisLeft() <= 0) {
        return;
      }
      long pause = restarts.nextPauseMillis(System.nanoTime());
      if (pause < 0) {
        failure = "The sidecar has died " + restarts + " (last: " + process.describeExit() + ").";
        LOG.error("spark-events: no more events will be reported, the job goes on. {}", failure);
        return;
      }
      LOG.warn(
          "spark-events: the sidecar ended ({}), it is started again in {} ms and is sent again what"
              + " it had not acknowledged",
          process.describeExit(),
          pause);
      finishing.await(pause, TimeUnit.MILLISECONDS);
    }
  }

  /** The first interpreter that answers "ready", or null with {@link #failure} saying what was tried. */
  private SidecarProcess launch() throws InterruptedException {
    List<String> tried = new ArrayList<>();
    for (Interpreter candidate : candidates) {
      String objection = candidate.objection();
      if (objection == null) {
        try {
          SidecarProcess started = SidecarProcess.start(candidate, queue::wakeWriter);
          objection = greet(started);
          if (objection == null) {
            candidates = java.util.Collections.singletonList(candidate);
            return started;
          }
          started.destroy();
          if (refused) {
            failure = objection;
            return null;
          }
        } catch (IOException noSuchProgram) {
          objection = noSuchProgram.getMessage();
        }
      }
      tried.add(candidate + ": " + objection);
    }
    failure =
        "No Python could run the sidecar. Tried: "
            + String.join("; ", tried)
            + ". What to do: pip install spark-events into one of these, or set spark.events.python to"
            + " the python of the environment that has it ("
            + (Interpreter.packageRoot() == null
                ? "the jar " + Interpreter.jar() + " lies outside its package"
                : "the package lies in " + Interpreter.packageRoot())
            + ").";
    return null;
  }

  /** Returns why the process cannot be used, or null. */
  private String greet(SidecarProcess started) throws InterruptedException {
    try {
      started.write(Record.json(this::writeHello));
      started.flush();
    } catch (IOException closed) {
      // It has ended already; its last word, if any, is still to be read.
    }
    Map<?, ?> answer = started.awaitFirstAnswer(settings.startTimeoutMillis());
    while (answer != null && "log".equals(answer.get("kind"))) {
      // A reporter that cannot be opened complains at once, perhaps before the sidecar is ready.
      receive(answer);
      answer = started.awaitFirstAnswer(settings.startTimeoutMillis());
    }
    if (answer == null) {
      return "no answer within " + settings.startTimeoutMillis() + " ms (events.sidecar.start-timeout)";
    }
    switch (String.valueOf(answer.get("kind"))) {
      case "ready":
        started.onAnswer(this::receive);
        return null;
      case "refused":
        refused = true;
        return "The configuration is not valid: " + answer.get("reason");
      case "unusable":
        return String.valueOf(answer.get("reason"));
      default:
        started.awaitExit(1_000);
        return "ended at once, " + started.describeExit();
    }
  }

  private void writeHello(JsonGenerator json) throws IOException {
    json.writeStringField("kind", "hello");
    json.writeNumberField("protocol", PROTOCOL);
    json.writeNumberField("sequence", nextSequence);
    json.writeNumberField("restarts", restarts.count());
    json.writeArrayFieldStart("settings");
    for (Settings.Setting setting : settings.all()) {
      json.writeStartObject();
      json.writeStringField("key", setting.givenKey);
      json.writeStringField("value", setting.value);
      json.writeStringField("origin", setting.origin);
      json.writeEndObject();
    }
    json.writeEndArray();
  }

  private void receive(Map<?, ?> answer) {
    switch (String.valueOf(answer.get("kind"))) {
      case "ack":
        nextSequence = ((Number) answer.get("sequence")).longValue();
        queue.acknowledge(((Number) answer.get("through")).longValue());
        break;
      case "log":
        log(String.valueOf(answer.get("level")), String.valueOf(answer.get("message")));
        break;
      default:
        break;
    }
  }

  private static void log(String level, String message) {
    if ("ERROR".equals(level)) {
      LOG.error("spark-events: {}", message);
    } else if ("WARNING".equals(level)) {
      LOG.warn("spark-events: {}", message);
    } else {
      LOG.info("spark-events: {}", message);
    }
  }

  /** Writes records until the process ends (false) or all is said (true). */
  private boolean feed(SidecarProcess sidecar) throws InterruptedException {
    try {
      for (Record known : queue.rewind()) {
        sidecar.write("{\"kind\":\"restored\",\"record\":".getBytes(StandardCharsets.US_ASCII));
        byte[] line = known.line();
        sidecar.write(Arrays.copyOf(line, line.length - 1)); // without its newline
        sidecar.write("}\n".getBytes(StandardCharsets.US_ASCII));
      }
      while (!sidecar.hasEnded()) {
        writeDrops(sidecar);
        Record record = queue.take(IDLE_MILLIS);
        if (record != null) {
          write(sidecar, record);
        }
        if (!queue.hasPending()) {
          sidecar.flush();
        }
        if (record == null && queue.isFinished()) {
          sidecar.write(Record.json(this::writeGoodbye));
          sidecar.flush();
          return true;
        }
      }
    } catch (IOException brokenPipe) {
      return false;
    }
    return false;
  }

  private void write(SidecarProcess sidecar, Record record) throws IOException {
    byte[] line;
    try {
      line = record.line();
    } catch (IOException | RuntimeException unwritable) {
      LOG.warn("spark-events: a record of kind {} could not be written: {}", record.kind, unwritable.toString());
      return;
    }
    sidecar.write(line);
  }

  private void writeDrops(SidecarProcess sidecar) throws IOException {
    Map<String, Long> drops = queue.takeDrops();
    if (drops.isEmpty()) {
      return;
    }
    LOG.warn(
        "spark-events: the handoff queue is full (events.dispatcher.queue.size = {}), dropped {}",
        settings.queueSize(),
        drops);
    sidecar.write(
        Record.json(
            json -> {
              json.writeStringField("kind", "dropped");
              json.writeNumberField("at", System.currentTimeMillis());
              json.writeObjectFieldStart("records");
              for (Map.Entry<String, Long> drop : drops.entrySet()) {
                json.writeNumberField(drop.getKey(), drop.getValue());
              }
              json.writeEndObject();
            }));
  }

  private void writeGoodbye(JsonGenerator json) throws IOException {
    json.writeStringField("kind", "goodbye");
    json.writeNumberField("within_ms", Math.max(0, millisLeft()));
  }

  /** After the goodbye the sidecar ends by itself; one that died before it had done its work did not. */
  private boolean drained(SidecarProcess sidecar) throws InterruptedException {
    boolean exited = sidecar.awaitExit(millisLeft());
    if (!exited) {
      return true;
    }
    sidecar.awaitLastAnswer(1_000);
    return queue.isAcknowledgedEntirely();
  }

  private long millisLeft() {
    return deadlineNanos == Long.MAX_VALUE
        ? Long.MAX_VALUE / 2_000_000
        : TimeUnit.NANOSECONDS.toMillis(deadlineNanos - System.nanoTime());
  }
}
