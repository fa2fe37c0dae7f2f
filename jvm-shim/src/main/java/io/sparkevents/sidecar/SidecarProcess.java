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

/** Running sidecar process: reads records from its standard input and writes messages to its standard output. */
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
   * Starts a sidecar process and its reading thread.
   *
   * @param onEnd called once, on the reading thread, when the process has closed its output
   * @throws IOException when the interpreter cannot be executed
   */
  public static SidecarProcess start(Interpreter interpreter, Runnable onEnd) throws IOException {
    // The process inherits the driver's standard error, so output of a log reporter there outlives the driver.
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
      // No other code has a reference to the process, which would wait for its first line forever.
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
      // The process has ended or is being destroyed: same as the end of its output.
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
      // A stray print of a reporter, not a message: skip it and keep reading.
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

  /**
   * Returns the first message, "ready" or the reason for a failed start; null if none arrives within {@code millis}.
   */
  Map<?, ?> awaitFirstAnswer(long millis) throws InterruptedException {
    return firstAnswer.poll(millis, TimeUnit.MILLISECONDS);
  }

  /** Passes messages to {@code receiver} from now on, on the reading thread; passes those already received first. */
  void onAnswer(Consumer<Map<?, ?>> receiver) {
    synchronized (firstAnswer) {
      for (Map<?, ?> early = firstAnswer.poll(); early != null; early = firstAnswer.poll()) {
        receiver.accept(early);
      }
      onAnswer = receiver;
    }
  }

  /**
   * Writes the first lines in one call, before any line that other threads write once the sidecar is ready.
   *
   * <p>A separate thread writes them, because a process that hangs before it reads would block the caller when the
   * lines exceed the pipe's buffer. That thread ends with the process.
   */
  void greet(byte[] lines) {
    Thread writer =
        new Thread(
            () -> {
              try {
                write(lines);
                flush();
              } catch (IOException closed) {
                // The process has already ended; the reading thread still receives its last message, if there is one.
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
      // The process closed its end first.
    }
  }

  /**
   * Whether the output has ended or the process has exited. Both are checked: a child of the process may keep the
   * output open.
   */
  boolean hasEnded() {
    return ended.getCount() == 0 || !process.isAlive();
  }

  /** Waits until the process has exited and its last messages are received; false if it is still running. */
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

  /** Kills the process and waits until it has exited, so that it does not overlap with its successor. */
  void end(long millis) throws InterruptedException {
    destroy();
    awaitExit(Math.min(MOST_EXIT_MILLIS, millis));
  }

  /** Whether a signal from outside ended the process: from a user, the out-of-memory killer or a container runtime. */
  boolean wasKilled() {
    return !process.isAlive() && (process.exitValue() == KILLED || process.exitValue() == TERMINATED);
  }

  /** Returns the exit for messages: "exit code 1", "exit code 137 (signal 9)" or "still running". */
  String describeExit() {
    if (process.isAlive()) {
      return "still running";
    }
    int code = process.exitValue();
    return code > 128 ? "exit code " + code + " (signal " + (code - 128) + ")" : "exit code " + code;
  }
}
