package io.sparkevents.listener;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.sparkevents.inprocess.InProcess;
import io.sparkevents.sidecar.Connection;
import java.io.IOException;
import org.apache.spark.SparkConf;

/**
 * How the Python program that drives this JVM ended, as its own exit hooks tell. {@code spark_events.configure} and
 * {@code spark_events.start} install them; without them there is no such account.
 */
public final class PythonProgram {
  /** Set by {@code spark_events.configure}. Not below spark.events, where the sidecar would check it. */
  private static final String TELLS = "spark.sparkEventsPythonTellsItsEnd";
  private static final ObjectMapper JSON = new ObjectMapper();

  private static volatile boolean tells;
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
    tells |= conf.getBoolean(TELLS, false);
  }

  /** Python: its exit hooks are installed, and will call {@link #ends}. */
  public static void willTell() {
    tells = true;
  }

  static boolean isExpectedToTell() {
    return tells;
  }

  /** What the program has told, or null. */
  static PythonProgram ended() {
    return ended;
  }

  /**
   * Python: the interpreter exits. Returns when the application's last event is delivered, where that event waited for
   * this call.
   *
   * @param told a JSON object with {@code exit_code} and {@code failure} as in a record, or {@code signal}; each only
   *     where it is known
   */
  public static void ends(String told) throws IOException {
    JsonNode object = JSON.readTree(told);
    PythonProgram program =
        new PythonProgram(
            endingOf(object),
            object.path("exit_code").isInt() ? object.path("exit_code").asInt() : null,
            object.path("failure").isObject() ? object.path("failure").toString() : null);
    ended = program;
    InProcess.pythonEnds(program);
    Connection.pythonEnds(program);
  }

  private static ApplicationOutcome endingOf(JsonNode told) {
    if (told.path("signal").asText("").equals(ApplicationOutcome.SIGINT.name())) {
      return ApplicationOutcome.SIGINT;
    }
    return told.path("exit_code").asInt(0) == 0 ? ApplicationOutcome.GATEWAY_CLOSED : ApplicationOutcome.PROGRAM_FAILED;
  }

  public ApplicationOutcome ending() {
    return ending;
  }

  /** Null where the program does not know it. */
  Integer exitCode() {
    return exitCode;
  }

  /** The exception as a record carries it, or null. */
  String failure() {
    return failure;
  }
}
