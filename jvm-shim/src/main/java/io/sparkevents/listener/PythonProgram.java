package io.sparkevents.listener;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.Consumer;
import org.apache.spark.SparkConf;

/**
 * How the Python program that drives this JVM ended, as reported by its exit hooks.
 *
 * <p>{@code spark_events.configure} and {@code spark_events.start} install the hooks; without them nothing is reported.
 */
public final class PythonProgram {
  /** Set by {@code spark_events.configure}; not below spark.events, because the sidecar validates those keys. */
  private static final String REPORTS_EXIT = "spark.sparkEventsPythonReportsExit";
  private static final ObjectMapper JSON = new ObjectMapper();

  private static final List<Consumer<PythonProgram>> OBSERVERS = new CopyOnWriteArrayList<>();

  private static volatile boolean reportsExit;
  private static volatile PythonProgram ended;

  private final ApplicationOutcome ending;
  private final Integer exitCode;
  private final String failure;

  private PythonProgram(ApplicationOutcome ending, Integer exitCode, String failure) {
    this.ending = ending;
    this.exitCode = exitCode;
    this.failure = failure;
  }

  public static void read(SparkConf conf) {
    reportsExit |= conf.getBoolean(REPORTS_EXIT, false);
  }

  /** Registers an observer that is called, on Python's thread, when the program has reported its end. */
  public static void onEnd(Consumer<PythonProgram> observer) {
    OBSERVERS.add(observer);
  }

  /** Called by Python when it has installed its exit hooks, which will call {@link #ends}. */
  public static void willReport() {
    reportsExit = true;
  }

  static boolean isExpectedToReport() {
    return reportsExit;
  }

  /** Returns the end that the program reported, or null. */
  static PythonProgram ended() {
    return ended;
  }

  /**
   * Called by Python's exit hooks when the interpreter exits.
   *
   * <p>If the application's last event is held for this call, returns when that event is delivered.
   *
   * @param report a JSON object with {@code exit_code} and {@code failure} as in a record, or {@code signal}; unknown
   *     values are left out
   */
  public static void ends(String report) throws IOException {
    JsonNode object = JSON.readTree(report);
    PythonProgram program =
        new PythonProgram(
            endingOf(object),
            object.path("exit_code").isInt() ? object.path("exit_code").asInt() : null,
            object.path("failure").isObject() ? object.path("failure").toString() : null);
    ended = program;
    OBSERVERS.forEach(observer -> observer.accept(program));
  }

  private static ApplicationOutcome endingOf(JsonNode report) {
    if (report.path("signal").asText("").equals(ApplicationOutcome.SIGINT.name())) {
      return ApplicationOutcome.SIGINT;
    }
    return report.path("exit_code").asInt(0) == 0 ? ApplicationOutcome.GATEWAY_CLOSED : ApplicationOutcome.PROGRAM_FAILED;
  }

  public ApplicationOutcome ending() {
    return ending;
  }

  /** Returns the exit code, or null if the program does not know it. */
  Integer exitCode() {
    return exitCode;
  }

  /** Returns the exception in the JSON format of a record, or null. */
  String failure() {
    return failure;
  }
}
