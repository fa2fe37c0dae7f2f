package io.sparkevents.sidecar;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/** One running sidecar: records go to its standard input, its answers come from its standard output. */
public final class SidecarProcess {
  /** Exit codes for SIGKILL and SIGTERM. */
  private static final int KILLED = 137;
  private static final int TERMINATED = 143;

  private static final ObjectMapper JSON = new ObjectMapper();
  private static final int BUFFER_BYTES = 64 * 1024;
  private static final long LAST_ANSWERS_MILLIS = 1_000;
  private static final long MOST_EXIT_MILLIS = 1_000;

  private final Process process;
  private final OutputStream input;
  private final BlockingQueue<Map<?, ?>> firstAnswer = new LinkedBlockingQueue<>();
  private final Runnable onEnd;
  private final Thread reader = new Thread(this::readAnswers, "spark-events-answers");
  private Consumer<Map<?, ?>> onAnswer;
  private final CountDownLatch ended = new CountDownLatch(1);

  private SidecarProcess(Process process, Runnable onEnd) {
    this.process = process;
    this.input = new BufferedOutputStream(process.getOutputStream(), BUFFER_BYTES);
    this.onEnd = onEnd;
  }

  /**
   * @param onEnd called once, from the reading thread, when the process has closed its output
   * @throws IOException when there is no such program
   */
  public static SidecarProcess start(Interpreter interpreter, Runnable onEnd) throws IOException {
    // Standard error is the driver's own: what a log reporter writes there outlives the driver.
    Process process =
        new ProcessBuilder(interpreter.command())
            .redirectError(ProcessBuilder.Redirect.INHERIT)
            .start();
    try {
      SidecarProcess sidecar = new SidecarProcess(process, onEnd);
      sidecar.reader.setDaemon(true);
      sidecar.reader.start();
      return sidecar;
    } catch (Throwable noThread) {
      // Nobody else knows of it, and it would wait for its first line for ever.
      process.destroyForcibly();
      throw noThread;
    }
  }

  private void readAnswers() {
    try (BufferedReader lines =
        new BufferedReader(
            new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8))) {
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        receive(line);
      }
    } catch (IOException closed) {
      // The process is gone, or being destroyed: the same as the end of its output.
    } finally {
      ended.countDown();
      firstAnswer.offer(java.util.Collections.singletonMap("kind", "ended"));
      onEnd.run();
    }
  }

  private void receive(String line) {
    Map<?, ?> answer;
    try {
      answer = JSON.readValue(line, Map.class);
    } catch (IOException notOurs) {
      // A reporter's stray print: it belongs to no one, and must not end the conversation.
      return;
    }
    if (answer == null) {
      return;
    }
    synchronized (firstAnswer) {
      if (onAnswer == null) {
        firstAnswer.offer(answer);
      } else {
        onAnswer.accept(answer);
      }
    }
  }

  /** The sidecar's verdict on itself, or null when it has none after {@code millis}. */
  Map<?, ?> awaitFirstAnswer(long millis) throws InterruptedException {
    return firstAnswer.poll(millis, TimeUnit.MILLISECONDS);
  }

  /** From now on, answers go to {@code receiver}, on the reading thread; those that have come already go first. */
  void onAnswer(Consumer<Map<?, ?>> receiver) {
    synchronized (firstAnswer) {
      for (Map<?, ?> early = firstAnswer.poll(); early != null; early = firstAnswer.poll()) {
        receiver.accept(early);
      }
      onAnswer = receiver;
    }
  }

  /**
   * Writes the first lines, all at once: what others write when it is ready comes behind them. On a thread of its own,
   * because a process that hangs before it reads would hold up whoever writes more than fits into the pipe; this thread
   * ends with the process.
   */
  void greet(byte[] lines) {
    Thread writer =
        new Thread(
            () -> {
              try {
                write(lines);
                flush();
              } catch (IOException closed) {
                // It has ended already; its last word, if any, is still to be read.
              }
            },
            "spark-events-hello");
    writer.setDaemon(true);
    writer.start();
  }

  void write(byte[] line) throws IOException {
    input.write(line);
  }

  void flush() throws IOException {
    input.flush();
  }

  void closeInput() {
    try {
      input.close();
    } catch (IOException gone) {
      // It has closed its end first.
    }
  }

  /** By its output, which ends with it, or by the system: a child that it has left may keep its output open. */
  boolean hasEnded() {
    return ended.getCount() == 0 || !process.isAlive();
  }

  /** Waits until the process is gone and its last answers have been received; false when it lives on. */
  boolean awaitExit(long millis) throws InterruptedException {
    if (!process.waitFor(Math.max(0, millis), TimeUnit.MILLISECONDS)) {
      return false;
    }
    reader.join(LAST_ANSWERS_MILLIS);
    return true;
  }

  void destroy() {
    process.destroyForcibly();
  }

  /** Ends it, and waits until it is gone: its successor is not to find it still there. */
  void end(long millis) throws InterruptedException {
    destroy();
    awaitExit(Math.min(MOST_EXIT_MILLIS, millis));
  }

  /** Whether it was ended from outside: by a person, by the system for want of memory, by what ends containers. */
  boolean wasKilled() {
    return !process.isAlive() && (process.exitValue() == KILLED || process.exitValue() == TERMINATED);
  }

  /** For messages: "exit code 1", "exit code 137 (signal 9)", or that it still runs. */
  String describeExit() {
    if (process.isAlive()) {
      return "still running";
    }
    int code = process.exitValue();
    return code > 128 ? "exit code " + code + " (signal " + (code - 128) + ")" : "exit code " + code;
  }
}
