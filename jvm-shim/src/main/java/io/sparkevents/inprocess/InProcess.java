package io.sparkevents.inprocess;

import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.JsonNode;
import io.sparkevents.config.Settings;
import io.sparkevents.listener.ApplicationEnd;
import io.sparkevents.listener.ApplicationOutcome;
import io.sparkevents.listener.Marker;
import io.sparkevents.listener.PythonProgram;
import io.sparkevents.listener.RecordSink;
import io.sparkevents.listener.RecordingListener;
import io.sparkevents.metrics.Statistics;
import io.sparkevents.queue.Record;
import io.sparkevents.queue.Threads;
import io.sparkevents.queue.Timeout;
import io.sparkevents.wire.DriverLog;
import io.sparkevents.wire.MessageReader;
import io.sparkevents.wire.RecordWriter;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;

/**
 * In-process stream that the driver's own Python opens with {@code spark_events.start}; it needs no sidecar.
 *
 * <p>Python fetches the records and sends its messages through py4j, on Python's own threads. The JVM never calls
 * Python, so Spark's listener thread never waits for the interpreter.
 */
public final class InProcess extends RecordSink {
  /** Size in bytes after which a fetch adds no more records. */
  private static final int FETCH_BYTES = 64 * 1024;
  private static final long LOOK_MILLIS = 20;
  /** Streams that are listening. */
  private static final Set<InProcess> OPEN = ConcurrentHashMap.newKeySet();

  static {
    PythonProgram.onEnd(InProcess::pythonEnds);
  }

  private final SparkContext context;
  private final DriverLog events = new DriverLog();
  private final MessageReader answers;
  private final Timeout timeout = new Timeout();
  private final RecordWriter feed;
  private final RecordingListener listener;
  private final CountDownLatch ended = new CountDownLatch(1);
  private boolean begun;
  /**
   * Exit of the Python program that drives the application. Null while the program runs, and after an exit without
   * failure.
   */
  private volatile ApplicationEnd pythonEnd;
  private volatile boolean listening;
  private volatile boolean goodbye;
  /** Thread that serves Python's connection; it ends when the connection ends. */
  private volatile Thread fetcher;

  private InProcess(SparkContext context, SparkConf conf, Settings settings) {
    super(settings);
    this.context = context;
    answers = new MessageReader(queue, barrier, new Statistics(), events);
    feed = new RecordWriter(settings, context.appName(), queue, timeout);
    listener = new RecordingListener(conf, this);
  }

  /**
   * Prepares a stream. The stream receives no events before {@link #listen}.
   *
   * @param request a JSON object: {@code settings}, which override the application's settings, and {@code queries}, the
   *     running streaming queries, each with {@code id}, {@code run_id} and {@code name}
   * @throws IllegalStateException when the settings cannot be read
   */
  public static InProcess open(SparkContext context, String request) throws IOException {
    JsonNode asked = Record.JSON.readTree(request);
    SparkConf conf = context.conf();
    Map<String, String> given = Record.JSON.convertValue(asked.path("settings"), new TypeReference<Map<String, String>>() {});
    Settings settings = new Settings(conf, System.getenv(), given);
    if (settings.given.problem != null) {
      throw new IllegalStateException(settings.given.problem);
    }
    InProcess made = new InProcess(context, conf, settings);
    made.queue.know(made.listener.application(context));
    for (JsonNode query : asked.path("queries")) {
      String name = query.path("name").textValue();
      made.queue.know(made.listener.query(query.path("id").asText(), query.path("run_id").asText(), name));
    }
    return made;
  }

  /** Starts to listen to Spark's events. */
  public void listen() {
    listening = true;
    OPEN.add(this);
    context.addSparkListener(listener);
  }

  /**
   * Returns the next lines; waits up to {@code millis} for a line. Only one thread may call this method.
   *
   * @return an empty array if there was no record, null after the goodbye message or the end of the stream
   */
  public byte[] fetch(long millis) throws IOException, InterruptedException {
    if (goodbye || ended.getCount() == 0) {
      return null;
    }
    fetcher = Thread.currentThread();
    ByteArrayOutputStream lines = new ByteArrayOutputStream();
    if (!begun) {
      begun = true;
      lines.write(feed.hello(answers.nextSequence(), Collections.emptyMap(), ""));
      feed.restore(lines);
      return lines.toByteArray();
    }
    long wait = millis;
    do {
      goodbye = feed.next(lines, wait);
      wait = 0;
    } while (!goodbye && lines.size() > 0 && lines.size() < FETCH_BYTES && queue.hasPending());
    return lines.toByteArray();
  }

  /** Receives messages from Python: one JSON object per line. */
  public void answer(byte[] lines) throws IOException {
    for (String line : new String(lines, StandardCharsets.UTF_8).split("\n")) {
      answers.receive(Record.JSON.readValue(line, Map.class));
    }
  }

  @Override
  protected boolean isEnding() {
    return context.isStopped() || timeout.isSet();
  }

  /** Ends the stream on the listener thread, so that the application ends only after its last events are delivered. */
  @Override
  public void end(ApplicationEnd end) {
    feed.reportDrops();
    queue.offer(end.record(false));
    finish();
    Threads.untilInterrupted(this::awaitEnd);
    queue.close();
  }

  /** Stops the stream: delivers all events so far, then sends the goodbye message. Called by Python. */
  public void stop() throws InterruptedException {
    if (listening && !context.isStopped()) {
      // Start the shutdown timeout here, so that it limits waits for answers, as when the application ends.
      startTimeout();
      awaitBus();
      context.removeSparkListener(listener);
      if (pythonEnd != null) {
        queue.offer(pythonEnd.record(false));
      }
    }
    finish();
  }

  private void finish() {
    startTimeout();
    queue.finish();
  }

  private void startTimeout() {
    if (!timeout.isSet()) {
      timeout.setAfter(settings.shutdownTimeoutMillis - barrier.spentAtTheEndMillis());
    }
  }

  /**
   * Waits until the bus has delivered all earlier events, for at most three quarters of the shutdown timeout. The last
   * quarter is reserved for the delivery to the reporters.
   */
  private void awaitBus() throws InterruptedException {
    Marker marker = new Marker(listener);
    context.listenerBus().post(marker);
    long left = settings.shutdownTimeoutMillis * 3 / 4;
    while (!marker.passed.await(LOOK_MILLIS, TimeUnit.MILLISECONDS) && left > 0 && !context.isStopped()) {
      left -= LOOK_MILLIS;
    }
  }

  /**
   * Waits until Python has finished or its connection has closed; a killed interpreter sends no last message.
   */
  private void awaitEnd() throws InterruptedException {
    while (!ended.await(LOOK_MILLIS, TimeUnit.MILLISECONDS) && !timeout.hasPassed()) {
      Thread last = fetcher;
      if (last == null || !last.isAlive()) {
        return;
      }
    }
  }

  /** Records the exit of the Python process that fetches the records; a failure becomes the application's outcome. */
  private static void pythonEnds(PythonProgram program) {
    if (program.ending != ApplicationOutcome.GATEWAY_CLOSED) {
      for (InProcess stream : OPEN) {
        // Do not send the goodbye message yet: Python stops its streams after this call, and the bus may still hold
        // events.
        stream.pythonEnd = ApplicationEnd.of(program);
      }
    }
  }

  /** Ends the stream when Python has finished or failed, and releases waiting threads. */
  public void end() throws InterruptedException {
    OPEN.remove(this);
    // Do this first: Spark can remove a listener only after its thread has returned, and that thread may be waiting
    // here.
    queue.close();
    if (listening && !context.isStopped()) {
      context.removeSparkListener(listener);
    }
    events.close(timeout.isSet() ? timeout.millisLeft() : 0);
    ended.countDown();
  }
}
