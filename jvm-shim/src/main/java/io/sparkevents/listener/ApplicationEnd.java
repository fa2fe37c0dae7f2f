package io.sparkevents.listener;

import io.sparkevents.queue.Priority;
import io.sparkevents.queue.Record;
import org.apache.spark.scheduler.SparkListenerApplicationEnd;
import scala.Option;
import scala.Product;

/**
 * Evidence of how an application ended: Spark's event, the threads of the JVM, the exit code, the exception.
 *
 * <p>A program that stops its SparkContext may still fail afterwards. Such an end is provisional until the JVM exits,
 * and is then observed again. {@code docs/outcomes.md} lists all endings.
 */
public final class ApplicationEnd {
  private final long time;
  /** Exit code in Spark's event, or null; Spark reports 0 if it does not know the code. */
  private final Integer sparkExitCode;
  private final ApplicationOutcome ending;
  /** The program's exit code, or null if it is unknown. */
  private final Integer programExitCode;
  private final boolean stoppedBefore;
  private final Throwable failure;
  private final PythonProgram python;

  private ApplicationEnd(
      long time,
      Integer sparkExitCode,
      ApplicationOutcome ending,
      Integer programExitCode,
      boolean stoppedBefore,
      Throwable failure,
      PythonProgram python) {
    this.time = time;
    this.sparkExitCode = sparkExitCode;
    this.ending = ending;
    this.programExitCode = programExitCode;
    this.stoppedBefore = stoppedBefore;
    this.failure = failure;
    this.python = python;
  }

  /** Observes the JVM while Spark posts the end of the application. */
  public static ApplicationEnd of(SparkListenerApplicationEnd event) {
    return observe(event.time(), sparkExitCode(event), false);
  }

  /** Returns an end without any evidence. */
  public static ApplicationEnd unknown() {
    return new ApplicationEnd(System.currentTimeMillis(), null, ApplicationOutcome.UNKNOWN, null, false, null, null);
  }

  /** Returns the end that the Python program reported while its SparkContext still runs. */
  public static ApplicationEnd of(PythonProgram python) {
    Integer code = python.exitCode();
    return new ApplicationEnd(System.currentTimeMillis(), null, python.ending(), code, false, null, python);
  }

  private static ApplicationEnd observe(long time, Integer sparkExitCode, boolean stoppedBefore) {
    Throwable uncaught = MainThread.uncaught();
    ApplicationOutcome ending = ApplicationOutcome.observe(uncaught != null);
    Integer code = isExit(ending) ? ExitCode.known() : null;
    Throwable failure = ending == ApplicationOutcome.UNCAUGHT_EXCEPTION ? uncaught : null;
    if (ending == ApplicationOutcome.SPARK_EXITED || ending == ApplicationOutcome.YARN_MASTER) {
      failure = LoggedExit.failure() == null ? uncaught : LoggedExit.failure();
    }
    if (ending == ApplicationOutcome.YARN_MASTER) {
      code = code == null ? LoggedExit.exitCode() : code;
      ending = ofYarn(code, failure);
    }
    PythonProgram python = PythonProgram.ended();
    if (ending == ApplicationOutcome.GATEWAY_CLOSED) {
      // The gateway exits with 0 even if Python failed.
      code = python == null ? null : python.exitCode();
      ending = python != null ? python.ending() : PythonProgram.isExpectedToReport() ? ApplicationOutcome.PYTHON_DIED : ending;
    } else if (ending != ApplicationOutcome.PROGRAM_FAILED || python == null || python.ending() != ending) {
      python = null;
    } else if (code == null) {
      code = python.exitCode();
    }
    return new ApplicationEnd(time, sparkExitCode, ending, code, stoppedBefore, failure, python);
  }

  /** Returns the outcome by the exit code that the ApplicationMaster also reports to YARN. */
  private static ApplicationOutcome ofYarn(Integer code, Throwable failure) {
    if (code != null) {
      return code == 0 ? ApplicationOutcome.RETURNED : ApplicationOutcome.PROGRAM_FAILED;
    }
    return failure == null ? ApplicationOutcome.UNKNOWN : ApplicationOutcome.PROGRAM_FAILED;
  }

  /** Returns whether the argument of {@code System.exit} is the program's exit code. */
  private static boolean isExit(ApplicationOutcome ending) {
    switch (ending) {
      case EXITED:
      case EXITED_ON_YARN:
      case PROGRAM_FAILED:
      case SPARK_EXITED:
      case SPARK_SQL:
      case YARN_MASTER:
        return true;
      default:
        return false;
    }
  }

  /** Returns the exit code in Spark's event, or null; the event of Spark 3.5 has no exit code. */
  private static Integer sparkExitCode(Product event) {
    Object code = event.productArity() > 1 ? event.productElement(1) : null;
    if (code instanceof Option && ((Option<?>) code).isDefined()) {
      Object value = ((Option<?>) code).get();
      return value instanceof Integer ? (Integer) value : null;
    }
    return null;
  }

  /**
   * Returns whether the program continues after {@code SparkContext.stop} and this JVM will see its outcome.
   *
   * <p>A plain {@code python app.py} does not wait for its JVM, so there Python's exit hooks must report the outcome.
   */
  public boolean isProvisional() {
    boolean isStopped = ending == ApplicationOutcome.STOPPED || ending == ApplicationOutcome.SUBMIT_STOPPED;
    return isStopped && (PythonProgram.isExpectedToReport() || !ApplicationOutcome.isDrivenByPython());
  }

  /** Observes this end again while the JVM exits; a failure replaces the outcome that {@code stop} implied. */
  public ApplicationEnd atExit() {
    ApplicationEnd last = observe(System.currentTimeMillis(), sparkExitCode, true);
    if (last.ending.isFailure() || last.hasFailed()) {
      return last;
    }
    boolean isReturned = ending == ApplicationOutcome.SUBMIT_STOPPED && last.ending == ApplicationOutcome.RETURNED;
    return new ApplicationEnd(
        time, sparkExitCode, isReturned ? ApplicationOutcome.RETURNED : ending, last.programExitCode, false, null, null);
  }

  /** Returns this end with the outcome that the Python program reported, if the program failed. */
  public ApplicationEnd with(PythonProgram program) {
    return program.ending() == ApplicationOutcome.PROGRAM_FAILED
        ? new ApplicationEnd(
            System.currentTimeMillis(), sparkExitCode, program.ending(), program.exitCode(), true, null, program)
        : this;
  }

  private boolean hasFailed() {
    return programExitCode != null && programExitCode != 0;
  }

  public Record record(boolean isProvisional) {
    boolean isExitByUser = ending == ApplicationOutcome.EXITED || ending == ApplicationOutcome.EXITED_ON_YARN;
    StackTraceElement exitCaller = isExitByUser ? ApplicationOutcome.exitCaller() : null;
    String shellError = ending == ApplicationOutcome.SPARK_SQL ? SqlShell.lastError() : null;
    return new Record(
        "application_end",
        Priority.LIFECYCLE,
        null,
        json -> {
          json.writeNumberField("time", time);
          json.writeStringField("ending", ending.name());
          if (sparkExitCode != null) {
            json.writeNumberField("exit_code", sparkExitCode);
          }
          if (programExitCode != null) {
            json.writeNumberField("program_exit_code", programExitCode);
          }
          if (isProvisional) {
            json.writeBooleanField("provisional", true);
          }
          if (stoppedBefore) {
            json.writeBooleanField("stopped_before", true);
          }
          if (exitCaller != null) {
            json.writeStringField("exit_caller", Text.cut(exitCaller.toString()));
          }
          if (shellError != null) {
            json.writeStringField("shell_error", Text.cut(shellError));
          }
          if (python != null && python.failure() != null) {
            json.writeFieldName("failure");
            json.writeRawValue(python.failure());
          } else if (failure != null) {
            json.writeObjectFieldStart("failure");
            Failures.write(json, failure);
            json.writeEndObject();
          }
        });
  }
}
