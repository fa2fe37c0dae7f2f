package io.sparkevents.sidecar;

import io.sparkevents.queue.Record;
import io.sparkevents.queue.Threads;
import io.sparkevents.queue.Timeout;
import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Consumer;

/** Running sidecar process, which reads records from its standard input and writes messages to its standard output. */
public final class SidecarProcess {
  /** Exit codes for SIGKILL and SIGTERM. */
  private static final List<Integer> KILLED = Arrays.asList(137, 143);
  /** Highest number of a signal. An exit code above 128 plus this number, such as 255, does not denote a signal. */
  private static final int LAST_SIGNAL = 64;
  /** Kinds of messages of which a process sends exactly one: that it is ready, or the reason why it exits. */
  private static final List<String> ANSWERS = Arrays.asList("ready", "refused", "unusable");

  /** Kind of the answer of a process that has not answered in time. */
  static final String LATE = "late";

  private static final int BUFFER_BYTES = 64 * 1024;
  /** Time for a process that has closed its output to exit, and for its last messages to arrive. */
  private static final long LAST_WORDS_MILLIS = 1_000;
  /** Time for a process to exit, before and after the kill, until the caller continues. */
  private static final long KILL_MILLIS = 50;

  private final Process process;
  /** Standard input of the process, with a buffer. */
  final OutputStream input;
  private final Consumer<Map<?, ?>> receiver;
  private final CompletableFuture<Map<?, ?>> answer = new CompletableFuture<>();
  private volatile boolean ended;
  private Thread reader;

  private SidecarProcess(Process process, Consumer<Map<?, ?>> receiver) {
    this.process = process;
    this.receiver = receiver;
    input = new BufferedOutputStream(process.getOutputStream(), BUFFER_BYTES);
  }

  /**
   * Starts a sidecar process and its reading thread.
   *
   * @param receiver called on the reading thread with each message
   * @param onEnd called once, on the reading thread, when the process has closed its output
   * @throws IOException when the interpreter cannot be executed
   */
  public static SidecarProcess start(Interpreter interpreter, Consumer<Map<?, ?>> receiver, Runnable onEnd)
      throws IOException {
    // The process inherits the driver's standard error, so a log reporter can still print after the driver has exited.
    ProcessBuilder builder = new ProcessBuilder(interpreter.command()).redirectError(ProcessBuilder.Redirect.INHERIT);
    Process process = builder.start();
    try {
      SidecarProcess sidecar = new SidecarProcess(process, receiver);
      sidecar.reader = Threads.start("answers", () -> sidecar.read(onEnd));
      return sidecar;
    } catch (Throwable noThread) {
      // Destroy the process here, because no other code refers to it, and it would wait forever for its first line.
      process.destroyForcibly();
      throw noThread;
    }
  }

  private void read(Runnable onEnd) {
    try (BufferedReader lines =
        new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8))) {
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        receive(line);
      }
    } catch (IOException closed) {
      // The process has exited or is being destroyed; handle this like the end of its output.
    } finally {
      ended = true;
      answer.complete(Collections.singletonMap("kind", "ended"));
      onEnd.run();
    }
  }

  private void receive(String line) {
    Map<?, ?> message;
    try {
      message = Record.JSON.readValue(line, Map.class);
    } catch (IOException notOurs) {
      // This line is not a message but, for example, output printed by a reporter: skip it and continue to read.
      return;
    }
    if (message != null) {
      receiver.accept(message);
      if (ANSWERS.contains(message.get("kind"))) {
        answer.complete(message);
      }
    }
  }

  /** Returns the message "ready", the reason for a failed start, or "ended"; "late" if none arrives in time. */
  Map<?, ?> awaitAnswer(long millis) throws InterruptedException {
    try {
      Map<?, ?> answered = answer.get(millis, TimeUnit.MILLISECONDS);
      if (ended) {
        awaitExit(LAST_WORDS_MILLIS);
      }
      return answered;
    } catch (TimeoutException | ExecutionException none) {
      return Collections.singletonMap("kind", LATE);
    }
  }

  /**
   * Writes the first lines in one call, before any line that other threads write after the sidecar is ready.
   *
   * <p>A separate thread writes them. If a process hangs before it reads, and the lines exceed the pipe's buffer,
   * writing would block the caller. The thread ends when the process exits.
   */
  void greet(byte[] lines) {
    Threads.start("hello", () -> {
      try {
        input.write(lines);
        input.flush();
      } catch (IOException closed) {
        // The process has already exited; the reading thread still receives its last message, if any.
      }
    });
  }

  /**
   * Whether the output has ended or the process has exited. Both are checked, because a child of the process may keep
   * the output open.
   */
  boolean hasEnded() {
    return ended || !process.isAlive();
  }

  /** Waits until the process has exited and its last messages are received; returns false if it is still running. */
  boolean awaitExit(long millis) throws InterruptedException {
    if (!process.waitFor(Math.max(0, millis), TimeUnit.MILLISECONDS)) {
      return false;
    }
    reader.join(LAST_WORDS_MILLIS);
    return true;
  }

  /**
   * Kills the process without waiting for its pipe.
   *
   * <p>After the kill, {@code destroyForcibly} closes the pipe. This close blocks while another thread is blocked in a
   * write: a child of a killed wrapper may keep the full pipe open. Therefore a separate thread calls the method.
   */
  void destroy() {
    try {
      Threads.start("kill", process::destroyForcibly);
    } catch (Throwable noThread) {
      process.destroyForcibly();
      return;
    }
    Threads.untilInterrupted(() -> process.waitFor(KILL_MILLIS, TimeUnit.MILLISECONDS));
  }

  /**
   * Kills the process and waits until it has exited, so that it does not overlap with the next process.
   *
   * <p>Waits briefly for the process to exit by itself and for its last messages: the kill closes its output, and a
   * lost acknowledgement would cause duplicate events.
   *
   * @param millis limit for all waits together, except the wait for the kill
   */
  void end(long millis) throws InterruptedException {
    Timeout timeout = new Timeout();
    timeout.setAfter(Math.min(LAST_WORDS_MILLIS, millis));
    if (process.waitFor(Math.min(KILL_MILLIS, millis), TimeUnit.MILLISECONDS)) {
      reader.join(Math.max(1, timeout.millisLeft()));
    }
    destroy();
    if (process.waitFor(timeout.millisLeft(), TimeUnit.MILLISECONDS)) {
      reader.join(Math.max(1, timeout.millisLeft()));
    }
  }

  /**
   * Whether an external signal ended the process, for example from a user, the out-of-memory killer or a container
   * runtime.
   */
  boolean wasKilled() {
    return !process.isAlive() && KILLED.contains(process.exitValue());
  }

  /** Describes the exit for messages: "exit code 1", "exit code 137 (signal 9)" or "still running". */
  String describeExit() {
    if (process.isAlive()) {
      return "still running";
    }
    int code = process.exitValue();
    return code > 128 && code <= 128 + LAST_SIGNAL
        ? "exit code " + code + " (signal " + (code - 128) + ")"
        : "exit code " + code;
  }
}
