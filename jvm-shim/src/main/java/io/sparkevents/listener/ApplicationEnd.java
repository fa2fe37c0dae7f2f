package io.sparkevents.listener;

import io.sparkevents.queue.Record;
import org.apache.spark.scheduler.SparkListenerApplicationEnd;
import scala.Option;
import scala.Product;

/**
 * Evidence of how an application ended: Spark's event, the threads of the JVM, the exit code, the exception.
 *
 * <p>A program may fail after it has stopped its SparkContext. Therefore such an end is provisional; when the JVM
 * exits, the evidence is collected again. {@code docs/outcomes.md} lists all outcomes.
 */
public final class ApplicationEnd {
  private final long time;
  /** Exit code in Spark's event, or null. Spark reports 0 if it does not know the code. */
  private final Integer sparkExitCode;
  private ApplicationOutcome ending;
  /** The program's exit code, or null if it is unknown. */
  private Integer programExitCode;
  private boolean stoppedBefore;
  private Throwable failure;
  private PythonProgram python;

  private ApplicationEnd(long time, Integer sparkExitCode, ApplicationOutcome ending) {
    this.time = time;
    this.sparkExitCode = sparkExitCode;
    this.ending = ending;
  }

  /** Collects the evidence in the JVM while Spark posts its event of the end. */
  public static ApplicationEnd of(SparkListenerApplicationEnd event) {
    return observe(event.time(), sparkExitCode(event));
  }

  /** Returns an end without any evidence. */
  public static ApplicationEnd unknown() {
    return new ApplicationEnd(System.currentTimeMillis(), null, ApplicationOutcome.UNKNOWN);
  }

  /** Returns the end that the Python program has reported while its SparkContext is still running. */
  public static ApplicationEnd of(PythonProgram python) {
    return of(python, null);
  }

  private static ApplicationEnd of(PythonProgram python, Integer sparkExitCode) {
    ApplicationEnd end = new ApplicationEnd(System.currentTimeMillis(), sparkExitCode, python.ending);
    end.programExitCode = python.exitCode;
    end.python = python;
    return end;
  }

  private static ApplicationEnd observe(long time, Integer sparkExitCode) {
    Throwable uncaught = ExitEvidence.uncaught();
    Throwable logged = ExitEvidence.loggedFailure();
    ApplicationEnd end = new ApplicationEnd(time, sparkExitCode, ApplicationOutcome.observe(uncaught != null));
    end.programExitCode = end.ending.isExit() ? ExitEvidence.exitCode() : null;
    switch (end.ending) {
      case UNCAUGHT_EXCEPTION:
        end.failure = uncaught;
        break;
      case SPARK_EXITED:
        end.failure = logged == null ? uncaught : logged;
        break;
      case YARN_MASTER:
        end.failure = logged == null ? uncaught : logged;
        end.observeYarn();
        break;
      default:
        break;
    }
    if (PythonProgram.ended() != null) {
      end.observe(PythonProgram.ended());
    } else if (end.ending == ApplicationOutcome.GATEWAY_CLOSED && PythonProgram.isExpectedToReport()) {
      end.ending = ApplicationOutcome.PYTHON_DIED;
    }
    return end;
  }

  /** Replaces the outcome with the exit code that the ApplicationMaster reports to YARN. */
  private void observeYarn() {
    if (programExitCode == null) {
      programExitCode = ExitEvidence.loggedExitCode();
    }
    if (programExitCode != null && programExitCode == 0) {
      ending = ApplicationOutcome.RETURNED;
    } else {
      boolean isUnknown = programExitCode == null && failure == null;
      ending = isUnknown ? ApplicationOutcome.UNKNOWN : ApplicationOutcome.PROGRAM_FAILED;
    }
  }

  private void observe(PythonProgram program) {
    if (ending == ApplicationOutcome.GATEWAY_CLOSED) {
      // The gateway exits with 0 even if the Python program failed.
      python = program;
      programExitCode = program.exitCode;
      ending = program.ending;
    } else if (ending == ApplicationOutcome.PROGRAM_FAILED && program.ending == ending) {
      python = program;
      programExitCode = programExitCode == null ? program.exitCode : programExitCode;
    }
  }

  /** Returns the exit code in Spark's event, or null; the event of Spark 3.5 has no exit code. */
  private static Integer sparkExitCode(Product event) {
    Object code = event.productArity() > 1 ? event.productElement(1) : null;
    Object value = code instanceof Option && ((Option<?>) code).isDefined() ? ((Option<?>) code).get() : null;
    return value instanceof Integer ? (Integer) value : null;
  }

  /**
   * Returns whether the program may continue after {@code SparkContext.stop} and this JVM can observe the program's
   * outcome.
   *
   * <p>A plain {@code python app.py} does not wait for its JVM. In that case, only Python's exit hooks can report the
   * outcome.
   */
  public boolean isProvisional() {
    boolean isStopped = ending == ApplicationOutcome.STOPPED || ending == ApplicationOutcome.SUBMIT_STOPPED;
    return isStopped && (PythonProgram.isExpectedToReport() || !ApplicationOutcome.isDrivenByPython());
  }

  /** Collects the evidence again while the JVM exits; a failure replaces the outcome that {@code stop} implied. */
  public ApplicationEnd atExit() {
    ApplicationEnd last = observe(System.currentTimeMillis(), sparkExitCode);
    boolean hasExitedInFailure = last.programExitCode != null && last.programExitCode != 0;
    if (last.ending.isFailure() || hasExitedInFailure) {
      last.stoppedBefore = true;
      return last;
    }
    if (ending == ApplicationOutcome.SUBMIT_STOPPED && last.ending == ApplicationOutcome.RETURNED) {
      ending = ApplicationOutcome.RETURNED;
    }
    programExitCode = last.programExitCode;
    return this;
  }

  /** Returns this end with the outcome that the Python program reported, if the program failed. */
  public ApplicationEnd with(PythonProgram program) {
    if (program.ending != ApplicationOutcome.PROGRAM_FAILED) {
      return this;
    }
    ApplicationEnd end = of(program, sparkExitCode);
    end.stoppedBefore = true;
    return end;
  }

  public Record record(boolean isProvisional) {
    boolean isExitByUser = ending == ApplicationOutcome.EXITED || ending == ApplicationOutcome.EXITED_ON_YARN;
    StackTraceElement exitCaller = isExitByUser ? ApplicationOutcome.exitCaller() : null;
    String caller = exitCaller == null ? null : Text.cut(exitCaller.toString());
    String shellError = ending == ApplicationOutcome.SPARK_SQL ? Text.cut(SqlShell.lastError()) : null;
    boolean isByPython = python != null && python.failure != null;
    // Read the values now, because the outcome of a held end may change when the JVM exits.
    String name = ending.name();
    Integer code = programExitCode;
    return new Record(
        "application_end",
        Record.Priority.LIFECYCLE,
        null,
        json -> {
          Record.write(json, "time", time, "ending", name, "exit_code", sparkExitCode, "program_exit_code", code);
          Record.write(json, "provisional", isProvisional, "stopped_before", stoppedBefore);
          Record.write(json, "exit_caller", caller, "shell_error", shellError);
          Record.write(json, "failure", isByPython ? python.failure : Failures.fields(failure));
        },
        Text.length(caller, shellError) + (isByPython ? python.failure.toString().length() : Failures.size(failure)));
  }
}
