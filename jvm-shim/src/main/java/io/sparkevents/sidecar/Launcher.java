package io.sparkevents.sidecar;

import io.sparkevents.config.Settings;
import io.sparkevents.metrics.Statistics;
import io.sparkevents.queue.Deadline;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;

/** Finds a Python interpreter that can run the sidecar, and starts it. Used by the supervisor thread. */
final class Launcher {
  /** Time for a process that closed its end of the pipe to exit, so that its exit code is known. */
  private static final long LAST_WORDS_MILLIS = 1_000;

  private final Settings settings;
  private final String application;
  private final SidecarMessages answers;
  private final Statistics statistics;
  private final Restarts restarts;
  private final Deadline deadline;
  private final Runnable onEnd;

  private List<Interpreter> candidates;
  private volatile SidecarProcess process;
  private String failure;
  private String objections = "";
  private boolean refused;
  private boolean killed;

  Launcher(
      Settings settings,
      String application,
      List<Interpreter> candidates,
      SidecarMessages answers,
      Statistics statistics,
      Restarts restarts,
      Deadline deadline,
      Runnable onEnd) {
    this.settings = settings;
    this.application = application;
    this.candidates = candidates;
    this.answers = answers;
    this.statistics = statistics;
    this.restarts = restarts;
    this.deadline = deadline;
    this.onEnd = onEnd;
  }

  /** Returns the process that was started last, whether it became ready or not; null before the first start. */
  SidecarProcess process() {
    return process;
  }

  /** Returns the maximum time for all candidates together, in milliseconds. */
  long patience() {
    return settings.startTimeoutMillis * candidates.size() + 1_000;
  }

  /** Returns why the last {@link #launch} returned null, with advice for the user. */
  String failure() {
    return failure;
  }

  /** Returns the problem of each candidate that was tried: {@link #failure} without the advice. */
  String objections() {
    return objections;
  }

  /** Whether the last process was killed before it was ready. The interpreter may still be usable. */
  boolean wasKilled() {
    return killed;
  }

  /**
   * Returns the first sidecar that reports "ready", or null and sets {@link #failure}.
   *
   * @param past lines to send together with the hello message
   */
  SidecarProcess launch(byte[] past) throws InterruptedException {
    List<String> tried = new ArrayList<>();
    refused = false;
    killed = false;
    for (Interpreter candidate : candidates) {
      String objection = candidate.objection();
      if (objection == null) {
        objection = start(candidate, past);
        if (objection == null) {
          candidates = Collections.singletonList(candidate);
          return process;
        }
        if (refused) {
          return fail(objection, objection);
        }
        if (deadline.hasPassed()) {
          return fail("The application ended before the sidecar was ready: " + candidate + ".", objection);
        }
        if (killed) {
          return fail("The sidecar was killed before it was ready: " + candidate + ".", objection);
        }
      }
      tried.add(candidate + ": " + objection);
    }
    String all = String.join("; ", tried);
    String advice =
        "No Python interpreter could run the sidecar. Tried: "
            + all
            + ". Run `pip install spark-events` for one of these interpreters, or set spark.events.python to"
            + " the interpreter of an environment with spark-events ("
            + (Interpreter.packageRoot() == null
                ? "the jar " + Interpreter.jar() + " is outside its package"
                : "the package is in " + Interpreter.packageRoot())
            + ").";
    return fail(advice, all);
  }

  private SidecarProcess fail(String why, String what) {
    failure = why;
    objections = what;
    return null;
  }

  /** Returns why the interpreter cannot be used, or null. */
  private String start(Interpreter candidate, byte[] past) throws InterruptedException {
    SidecarProcess started;
    try {
      started = SidecarProcess.start(candidate, onEnd);
    } catch (IOException noSuchProgram) {
      return candidate.describe(noSuchProgram);
    }
    // Assigned before the sidecar is ready, so that the end of the application can also kill a process that hangs.
    process = started;
    String objection;
    try {
      byte[] hello = HelloMessage.line(settings, application, answers.nextSequence(), restarts.count(), statistics.before());
      byte[] lines = Arrays.copyOf(hello, hello.length + past.length);
      System.arraycopy(past, 0, lines, hello.length, past.length);
      started.greet(lines);
      objection = awaitReady(started);
    } catch (IOException unwritable) {
      objection = unwritable.toString();
      started.awaitExit(LAST_WORDS_MILLIS);
    }
    if (objection != null) {
      killed = started.wasKilled();
      started.end(deadline.millisLeft());
    }
    return objection;
  }

  private String awaitReady(SidecarProcess started) throws InterruptedException {
    long most = settings.startTimeoutMillis;
    Deadline patience = new Deadline();
    patience.setAfter(most);
    while (true) {
      long millis = Math.min(patience.millisLeft(), deadline.millisLeft());
      Map<?, ?> answer = started.awaitFirstAnswer(millis);
      if (answer == null) {
        return "no answer within " + most + " ms (spark.events.sidecar.start-timeout)";
      }
      switch (String.valueOf(answer.get("kind"))) {
        case "ready":
          answers.receive(answer);
          started.onAnswer(answers::receive);
          return null;
        case "refused":
          refused = true;
          return "The configuration is invalid: " + answer.get("reason");
        case "unusable":
          return String.valueOf(answer.get("reason"));
        case "ended":
          started.awaitExit(LAST_WORDS_MILLIS);
          return "process ended before it was ready, " + started.describeExit();
        default:
          // A log line: a reporter that cannot be opened may log before the sidecar is ready.
          answers.receive(answer);
      }
    }
  }
}
