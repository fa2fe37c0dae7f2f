package io.sparkevents.sidecar;

import io.sparkevents.config.Settings;
import io.sparkevents.queue.Timeout;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;

/** Finds a Python interpreter that can run the sidecar, and starts the sidecar. Used by the supervisor thread. */
final class Launcher {
  /** Thrown if no candidate becomes a ready sidecar; the message contains advice for the user. */
  static final class StartFailure extends Exception {
    private static final long serialVersionUID = 1;

    /** Problem of each candidate that was tried. */
    final String objections;
    /** Whether the last process was killed before it was ready; the interpreter may still work. */
    final boolean wasKilled;

    StartFailure(String advice, String objections, boolean wasKilled) {
      super(advice);
      this.objections = objections;
      this.wasKilled = wasKilled;
    }
  }

  private final long startTimeoutMillis;
  private final Timeout timeout;
  private final Consumer<Map<?, ?>> receiver;
  private final Runnable onEnd;

  private List<Interpreter> candidates;
  private volatile SidecarProcess process;

  /**
   * @param receiver called on the process's reading thread with each message
   * @param onEnd called on the reading thread when the process has closed its output
   */
  Launcher(
      Settings settings, List<Interpreter> candidates, Timeout timeout, Consumer<Map<?, ?>> receiver, Runnable onEnd) {
    startTimeoutMillis = settings.startTimeoutMillis;
    this.candidates = candidates;
    this.timeout = timeout;
    this.receiver = receiver;
    this.onEnd = onEnd;
  }

  /** Returns the process that was started last, ready or not; null before the first start. */
  SidecarProcess process() {
    return process;
  }

  /** Returns the maximum time for all candidates together, in milliseconds. */
  long patience() {
    return startTimeoutMillis * candidates.size() + 1_000;
  }

  /**
   * Returns the first sidecar that sends the message "ready".
   *
   * @param lines hello message and restore state
   */
  SidecarProcess launch(byte[] lines) throws StartFailure, InterruptedException {
    List<String> tried = new ArrayList<>();
    for (Interpreter candidate : candidates) {
      String objection = candidate.objection();
      if (objection == null) {
        objection = start(candidate, lines);
      }
      if (objection == null) {
        candidates = Collections.singletonList(candidate);
        return process;
      }
      tried.add(candidate + ": " + objection);
    }
    String all = String.join("; ", tried);
    String place =
        Interpreter.packageRoot() == null
            ? "the jar " + Interpreter.jar() + " is outside its package"
            : "the package is in " + Interpreter.packageRoot();
    String advice =
        "No Python interpreter could run the sidecar. Tried: %s. Run `pip install spark-events` for one of these"
            + " interpreters, or set spark.events.python to the interpreter of an environment with spark-events (%s).";
    throw new StartFailure(String.format(advice, all, place), all, false);
  }

  /** Returns the reason why the interpreter cannot be used, or null. */
  private String start(Interpreter candidate, byte[] lines) throws StartFailure, InterruptedException {
    SidecarProcess started;
    try {
      started = SidecarProcess.start(candidate, receiver, onEnd);
    } catch (IOException noSuchProgram) {
      return candidate.describe(noSuchProgram);
    }
    // Assign the process before it is ready, so that a hanging process can be killed when the application ends.
    process = started;
    started.greet(lines);
    Map<?, ?> answer = started.awaitAnswer(Math.min(startTimeoutMillis, timeout.millisLeft()));
    Object kind = answer.get("kind");
    if ("ready".equals(kind)) {
      return null;
    }
    String objection = objection(started, answer);
    boolean wasKilled = started.wasKilled();
    started.end(timeout.millisLeft());
    if ("refused".equals(kind)) {
      throw new StartFailure(objection, objection, wasKilled);
    }
    if (timeout.hasPassed()) {
      String ended = "The application ended before the sidecar was ready: " + candidate + ".";
      throw new StartFailure(ended, objection, wasKilled);
    }
    if (wasKilled) {
      throw new StartFailure("The sidecar was killed before it was ready: " + candidate + ".", objection, true);
    }
    return objection;
  }

  private String objection(SidecarProcess started, Map<?, ?> answer) throws InterruptedException {
    switch (String.valueOf(answer.get("kind"))) {
      case SidecarProcess.LATE:
        return "no answer within " + startTimeoutMillis + " ms (spark.events.sidecar.start-timeout)";
      case "refused":
        return "The configuration is invalid: " + answer.get("reason");
      case "unusable":
        return String.valueOf(answer.get("reason"));
      default:
        return "process ended before it was ready, " + started.describeExit();
    }
  }
}
