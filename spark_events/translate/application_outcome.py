"""Outcome of an application: its final status, the sentence about it, and its exit code."""

from __future__ import annotations

from spark_events.failures.exit_codes import killed_by
from spark_events.records.types import ApplicationEnd

__all__ = ["exit_code", "is_known", "outcome"]

# Status and message for each kind of termination that the shim detects. FINISHED and FAILED require a known outcome.
_ENDINGS = {
    "STOPPED": ("FINISHED", "finished: its own code stopped it"),
    "RETURNED": ("FINISHED", "finished: its main method returned"),
    "UNCAUGHT_EXCEPTION": ("FAILED", "failed: its main method threw an exception"),
    "PROGRAM_FAILED": ("FAILED", "failed: its program ended with an error"),
    "SPARK_STOPPED": ("FAILED", "failed: Spark itself stopped it, because it could not continue"),
    "SPARK_EXITED": ("FAILED", "failed: Spark itself exited its driver, because it could not continue"),
    "EXITED_ON_YARN": ("FAILED", "failed: its code called System.exit, which YARN counts as a failure"),
    "START_FAILED": ("FAILED", "failed to start"),
    "SUBMIT_STOPPED": ("ENDED", "ended; its outcome is unknown"),
    "GATEWAY_CLOSED": ("ENDED", "ended: its Python process exited; its outcome is unknown"),
    "PYTHON_DIED": (
        "ENDED",
        "ended: its Python process exited without its exit hooks, killed by a signal or by os._exit",
    ),
    "SPARK_SQL": ("ENDED", "ended with its spark-sql shell; its outcome is unknown"),
    "SIGTERM": ("CANCELLED", "was cancelled by SIGTERM (a kill command, or its cluster manager)"),
    "SIGINT": ("CANCELLED", "was cancelled by SIGINT (Ctrl-C)"),
    "SIGHUP": ("CANCELLED", "was cancelled by SIGHUP (its terminal closed)"),
    "EXITED": ("ENDED", "ended: its code called System.exit; its outcome is unknown"),
}
# Kinds of termination for which exit code 0 from Spark is reliable.
_TRUE_ZERO = ("RETURNED", "SPARK_SQL")
_UNKNOWN_ENDING = ("ENDED", "ended; its outcome is unknown")


def outcome(record: ApplicationEnd) -> tuple[str, str]:
    """Return the application's final status and the message that describes it."""
    # Spark also reports exit code 0 if it does not know the code. Any other code was set by the program.
    code = record.exit_code or record.program_exit_code
    if code:
        after = " after it had stopped its SparkContext" if record.stopped_before else ""
        killed = killed_by(code)
        return "FAILED", f"failed{after}: {killed}" if killed else f"failed with exit code {code}{after}"
    if record.ending == "SPARK_SQL" and record.exit_code == 0:
        return "FINISHED", "finished: its spark-sql shell exited with code 0"
    if code == 0 and record.ending in ("GATEWAY_CLOSED", "EXITED", "SPARK_EXITED"):
        return "FINISHED", "finished: its program ended with exit code 0"
    if record.exit_signal and record.ending == "PYTHON_DIED":
        return "ENDED", f"ended: its Python process was killed by {record.exit_signal}"
    status, sentence = _ENDINGS.get(record.ending, _UNKNOWN_ENDING)
    if record.exit_caller:
        sentence = sentence.replace("System.exit", f"System.exit in {record.exit_caller}")
    return status, sentence


def exit_code(record: ApplicationEnd) -> int | None:
    """Return the exit code; None if unknown."""
    if record.exit_code or (record.exit_code == 0 and record.ending in _TRUE_ZERO):
        return record.exit_code
    return record.program_exit_code


def is_known(record: ApplicationEnd) -> bool:
    """Return whether the exit code is known, or the main method is known to have returned."""
    return exit_code(record) is not None or record.ending == "RETURNED"
