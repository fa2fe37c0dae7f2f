package io.sparkevents.listener;

import com.fasterxml.jackson.databind.JsonNode;
import io.sparkevents.queue.Record;
import java.io.IOException;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.Consumer;
import org.apache.spark.SparkConf;

/**
 * Exit of the Python program that drives this JVM, as reported by the program's exit hooks.
 *
 * <p>{@code spark_events.configure} and {@code spark_events.start} install the hooks. Without hooks, this class has no
 * report.
 */
public final class PythonProgram {
  /**
   * Key that {@code spark_events.configure} sets. It is not below spark.events, because the sidecar validates those
   * keys.
   */
  private static final String REPORTS_EXIT = "spark.sparkEventsPythonReportsExit";

  private static final List<Consumer<PythonProgram>> OBSERVERS = new CopyOnWriteArrayList<>();

  private static volatile boolean reportsExit;
  private static volatile PythonProgram ended;

  public final ApplicationOutcome ending;
  /** The program's exit code; null if the program does not know it. */
  final Integer exitCode;
  /** The exception in the format of a record, or null. */
  final JsonNode failure;

  private PythonProgram(JsonNode report) {
    exitCode = report.path("exit_code").isInt() ? report.path("exit_code").asInt() : null;
    failure = report.path("failure").isObject() ? report.path("failure") : null;
    if (report.path("signal").asText("").equals(ApplicationOutcome.SIGINT.name())) {
      ending = ApplicationOutcome.SIGINT;
    } else {
      boolean isSuccess = exitCode == null || exitCode == 0;
      ending = isSuccess ? ApplicationOutcome.GATEWAY_CLOSED : ApplicationOutcome.PROGRAM_FAILED;
    }
  }

  public static void read(SparkConf conf) {
    reportsExit |= conf.getBoolean(REPORTS_EXIT, false);
  }

  /** Registers an observer, which Python's thread calls after the program has reported its exit. */
  public static void onEnd(Consumer<PythonProgram> observer) {
    OBSERVERS.add(observer);
  }

  /** Called by Python after it has installed its exit hooks, which will call {@link #ends}. */
  public static void willReport() {
    reportsExit = true;
  }

  static boolean isExpectedToReport() {
    return reportsExit;
  }

  /** Returns the exit that the program reported, or null. */
  static PythonProgram ended() {
    return ended;
  }

  /**
   * Called by Python's exit hooks when the interpreter exits.
   *
   * <p>If the application's last event is held until this call, the method returns when that event is delivered.
   *
   * @param report a JSON object with {@code exit_code} and {@code failure} as in a record, or {@code signal}; unknown
   *     values are omitted
   */
  public static void ends(String report) throws IOException {
    PythonProgram program = new PythonProgram(Record.JSON.readTree(report));
    ended = program;
    OBSERVERS.forEach(observer -> observer.accept(program));
  }
}
