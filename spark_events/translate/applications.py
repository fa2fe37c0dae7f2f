"""Start and termination of the application, and its outcome if known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spark_events.bridge.records import ApplicationEnd, ApplicationStart
from spark_events.event import AttributeValue, Severity
from spark_events.translate.draft import Draft, present
from spark_events.translate.entities import failure, status_change
from spark_events.translate.failure_classes import UNKNOWN
from spark_events.translate.failures import Diagnosis, Diagnostics
from spark_events.translate.incidents.fingerprint import fingerprint
from spark_events.translate.last_failure import LastFailure
from spark_events.translate.status import Status
from spark_events.translate.user_code import UserCode

__all__ = ["Applications", "named"]

#: Maximum number of running queries and jobs that the body of an event names.
_MOST_NAMED = 10

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
_SEVERITIES = {"FAILED": Severity.ERROR, "CANCELLED": Severity.WARN}
_UNKNOWN_ENDING = ("ENDED", "ended; its outcome is unknown")


def _outcome(record: ApplicationEnd) -> tuple[str, str]:
    """Return the application's final status and the message that describes it."""
    # Spark also reports exit code 0 if it does not know the code. Any other code was set by the program.
    code = record.exit_code or record.program_exit_code
    if code:
        after = " after it had stopped its SparkContext" if record.stopped_before else ""
        return "FAILED", f"failed with exit code {code}{after}"
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


def _exit_code(record: ApplicationEnd) -> int | None:
    """Return the exit code; None if unknown."""
    if record.exit_code or (record.exit_code == 0 and record.ending in _TRUE_ZERO):
        return record.exit_code
    return record.program_exit_code


#: Attributes of the orchestrator's run that submitted the application, by the name in the record.
_PARENT = {
    "parentRun": "openlineage.parent.run_id",
    "parentNamespace": "openlineage.parent.job_namespace",
    "parentJob": "openlineage.parent.job_name",
    "rootRun": "openlineage.root_parent.run_id",
    "rootNamespace": "openlineage.root_parent.job_namespace",
    "rootJob": "openlineage.root_parent.job_name",
}


class Applications:
    """The status of the driver's application.

    Attributes:
        name: the application's name, as used in event bodies.
        identity: prefix of the keys of all events.
        scope_variables: attributes of all events.
        prefix: prefix of the bodies of events about a part of the application.
        status: the application's status.
    """

    def __init__(self, diagnostics: Diagnostics, last_failure: LastFailure) -> None:
        self.illegal = 0
        self._last_failure = last_failure
        self._diagnostics = diagnostics
        self.scope_variables: dict[str, AttributeValue] = {}
        self.identity = _identity(None, None)
        self.name = "?"
        self.prefix = ""
        self.status = Status()

    def assume(self, app_id: str, attempt_id: str | None) -> None:
        """Set the id and name of an application whose start was not recorded."""
        self.name = app_id
        self.prefix = f"{app_id}: "
        self.identity = _identity(app_id, attempt_id)
        self.scope_variables = present({"spark.app.id": app_id, "spark.app.attempt_id": attempt_id})

    def started(self, record: ApplicationStart) -> Iterator[Draft]:
        """Report the start, and add the application's attributes to all later events."""
        if not self.status.become("RUNNING"):
            self.illegal += 1
            return
        self.name = record.app_name
        self._diagnostics.code = UserCode(record.command, record.main_class, record.py_files, record.namespaces)
        name = record.app_name or record.app_id
        self.prefix = f"{name}: " if name else ""
        self.identity = _identity(record.app_id, record.attempt_id)
        self.scope_variables = present(
            {
                "spark.app.id": record.app_id,
                "spark.app.name": record.app_name,
                "spark.app.attempt_id": record.attempt_id,
                "spark.user": record.user,
                "spark.version": record.spark_version or None,
                "host.name": record.host or None,
            }
        )
        parent: dict[str, AttributeValue | None] = {name: record.links.get(link) for link, name in _PARENT.items()}
        yield _change(None, "RUNNING", record.time, f"Application '{self.name}' started", Severity.INFO, parent)

    def ended(
        self,
        record: ApplicationEnd,
        failed_queries: Sequence[str],
        running: Sequence[str],
        failed_job: int | None,
    ) -> Iterator[Draft]:
        """Report that the application has ended; the status is ENDED if the outcome is unknown.

        Args:
            record: the termination that the shim detected.
            failed_queries: titles of the queries whose latest run failed.
            running: the queries and jobs that still run. Spark cancels them after its last callback, so the last event
                of the application names them.
            failed_job: the last job, if it failed.
        """
        old, (new, how) = self.status.value, _outcome(record)
        if not self.status.become(new):
            self.illegal += 1
            return
        hints = [f"query '{name}' failed" for name in failed_queries]
        if failed_job is not None:
            hints.append(f"job {failed_job} failed")
        sentence, diagnosis = self._reason(record)
        known = self._last_failure
        if sentence is not None and not (sentence == known.sentence and f"{known.title} failed" in hints):
            hints.append(f"{sentence}{'' if new == 'FAILED' or diagnosis is None else f': {diagnosis.summary}'}")
        body = f"Application '{self.name}' {how}{_while(running)}"
        if hints:
            body += f" ({', '.join(hints)})"
        details: dict[str, AttributeValue | None] = {
            "spark.app.end_reason": record.ending,
            "spark.app.exit_code": _exit_code(record),
            "spark.app.exit_signal": record.exit_signal,
            "spark.app.exit_caller": record.exit_caller,
            "spark.app.outcome_hint": "; ".join(hints) or None,
        }
        severity = Severity.WARN if record.ending == "PYTHON_DIED" else _SEVERITIES.get(new, Severity.INFO)
        yield _change(old, new, record.time, body, severity, details)
        if new == "FAILED":
            details = {
                "error.type": record.ending,
                "failure.fingerprint": fingerprint(record.ending, "", None),
                "failure.class": UNKNOWN,
                **details,
                **(diagnosis.attributes if diagnosis else {}),
            }
            body = self._failure_body(record, how, sentence, diagnosis)
            yield failure("application", (), body, Severity.ERROR, record.time, details)

    def _failure_body(self, record: ApplicationEnd, how: str, sentence: str | None, diagnosis: Diagnosis | None) -> str:
        """Describe the failure and its cause, or how the program ended if nothing failed."""
        if diagnosis is None:
            return f"Application {how}"
        if sentence is None:
            before = self._last_failure
            if before.diagnosis is None or before.explains(diagnosis):
                return f"Application {how}: {diagnosis.summary}"
            # The exception that ended the program often hides the cause, an earlier failure in Spark.
            return f"Application {how}: {diagnosis.summary} (after {before.sentence}: {before.diagnosis.summary})"
        code = _exit_code(record)
        return f"Application failed{f' with exit code {code}' if code else ''}: {sentence}: {diagnosis.summary}"

    def _reason(self, record: ApplicationEnd) -> tuple[str | None, Diagnosis | None]:
        """Return a clause that names the failed work, and the diagnosis of the failure; either may be None.

        A failure in the record of the application's end takes precedence over the last earlier failure.
        """
        if record.failure is not None:
            return None, self._diagnostics.of(record.failure)
        known = self._last_failure
        if record.shell_error and record.exit_code != 0:
            diagnosis = self._diagnostics.of_text(record.shell_error.strip())
            if not known.explains(diagnosis):
                return "the last statement failed", diagnosis
        return known.sentence or None, known.diagnosis

    def lost(self, at: int, orderly: bool, running: Sequence[str], how: str) -> Iterator[Draft]:
        """Report a driver that exited without a record of its exit: ENDED after a JVM shutdown, else LOST."""
        old = self.status.value
        if old is None or not self.status.become("ENDED" if orderly else "LOST"):
            return
        if orderly:
            body = f"Application '{self.name}' ended with its JVM; its outcome is unknown"
            yield _change(old, "ENDED", at, body, Severity.INFO, {"spark.app.end_reason": "JVM_SHUTDOWN"})
            return
        body, known = f"Application '{self.name}' is lost: {how}{_while(running)}", self._last_failure
        if known.diagnosis is not None:
            body += f" (before that, {known.sentence}: {known.diagnosis.summary})"
        yield _change(old, "LOST", at, body, Severity.FATAL, {"spark.app.end_reason": "DRIVER_DIED"})


def named(body: str, prefix: str) -> str:
    """Return the body of an event with the application's name first, for files shared by applications."""
    if not prefix or body.startswith("Application '"):
        return body
    # Keep the capitals of "SQL execution".
    return f"{prefix}{body if body[1:2].isupper() else body[:1].lower() + body[1:]}"


def _while(running: Sequence[str]) -> str:
    more = f" and {len(running) - _MOST_NAMED:,} more" if len(running) > _MOST_NAMED else ""
    return f" while running {', '.join(running[:_MOST_NAMED])}{more}" if running else ""


def _identity(app_id: str | None, attempt_id: str | None) -> str:
    return f"{app_id or ''}\x1f{attempt_id or ''}"


def _change(
    old: str | None,
    new: str,
    at: int,
    body: str,
    severity: Severity,
    details: dict[str, AttributeValue | None],
) -> Draft:
    # Use one key for every termination, so that a live run and a replay produce the same event id. LOST has a separate
    # key, because the driver may still be running.
    key = new if new in ("RUNNING", "LOST") else "end"
    return status_change("application", (key,), (old, new), body, severity, at, details)
