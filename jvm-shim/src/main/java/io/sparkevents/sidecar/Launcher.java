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

/** Finds the Python that can run the sidecar, and starts it. Used by the supervisor's thread. */
final class Launcher {
  /** What has closed its end of the pipe is gone a moment later, and its exit code tells why. */
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

  /** The process that was started last, whether or not it was of any use; null before the first. */
  SidecarProcess process() {
    return process;
  }

  /** How long all candidates together may take, in milliseconds. */
  long patience() {
    return settings.startTimeoutMillis() * candidates.size() + 1_000;
  }

  /** Why {@link #launch} has found none. */
  String failure() {
    return failure;
  }

  /** What was wrong with each that was tried; {@link #failure} without advice. */
  String objections() {
    return objections;
  }

  /** Whether the last was killed before it was ready, which tells nothing of its interpreter. */
  boolean wasKilled() {
    return killed;
  }

  /**
   * The first interpreter's sidecar that answers "ready"; or null, with {@link #failure} saying what was tried.
   *
   * @param past what it is told together with the first line
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
          return fail("The application ended before the sidecar was ready.", objection);
        }
        if (killed) {
          return fail("The sidecar was killed while it started: " + candidate + ".", objection);
        }
      }
      tried.add(candidate + ": " + objection);
    }
    String all = String.join("; ", tried);
    String advice =
        "No Python could run the sidecar. Tried: "
            + all
            + ". What to do: pip install spark-events into one of these, or set spark.events.python to"
            + " the python of the environment that has it ("
            + (Interpreter.packageRoot() == null
                ? "the jar " + Interpreter.jar() + " lies outside its package"
                : "the package lies in " + Interpreter.packageRoot())
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
    // Known from now on: one that hangs before it is ready must be found, too, when the application ends.
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
    long most = settings.startTimeoutMillis();
    Deadline patience = new Deadline();
    patience.setAfter(most);
    while (true) {
      long millis = Math.min(patience.millisLeft(), deadline.millisLeft());
      Map<?, ?> answer = started.awaitFirstAnswer(millis);
      if (answer == null) {
        return "no answer within " + most + " ms (events.sidecar.start-timeout)";
      }
      switch (String.valueOf(answer.get("kind"))) {
        case "ready":
          answers.receive(answer);
          started.onAnswer(answers::receive);
          return null;
        case "refused":
          refused = true;
          return "The configuration is not valid: " + answer.get("reason");
        case "unusable":
          return String.valueOf(answer.get("reason"));
        case "ended":
          started.awaitExit(LAST_WORDS_MILLIS);
          return "ended at once, " + started.describeExit();
        default:
          // A reporter that cannot be opened complains at once, perhaps before the sidecar is ready.
          answers.receive(answer);
      }
    }
  }
}
