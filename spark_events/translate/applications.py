"""Start and termination of the application, and its outcome if known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b

from spark_events.event import AttributeValue, Severity
from spark_events.event.text import lasting
from spark_events.failures.classes import UNKNOWN
from spark_events.records.types import ApplicationEnd, ApplicationStart
from spark_events.translate.application_outcome import exit_code, is_known, outcome
from spark_events.translate.draft import Draft, capitalized, present
from spark_events.translate.entities import failure, status_change
from spark_events.translate.failures import Diagnosis, Diagnostics
from spark_events.translate.incidents.fingerprint import fingerprint
from spark_events.translate.pipelines import PipelineOutcome, Pipelines
from spark_events.translate.queries import Run
from spark_events.translate.standing_failures import StandingFailure, StandingFailures, same_cause
from spark_events.translate.status import Status
from spark_events.translate.user_code import UserCode

__all__ = ["Applications", "named"]

#: Maximum number of running queries and jobs that the body of an event names.
_MOST_NAMED = 10
#: If nothing else is known about a failed application, it ended because of a failed query only if it ended within this
#: time after the query, in milliseconds.
_SOON_AFTER = 10_000
#: Tolerance for an application's end that Spark dates before the query's, in milliseconds: Spark reports queries late
#: while its listener bus has a backlog.
_BACKLOG = 60_000

# Signals by which a user or a cluster manager ends a program; any other signal that ends it is a failure.
_ASKED = ("SIGTERM", "SIGINT", "SIGHUP")
# Outcomes that a standing failure makes doubtful if the exit code is unknown.
_DOUBTFUL = ("FINISHED", "ENDED")
# Ends of an application that the command of its pipeline causes.
_OF_COMMAND = ("STOPPED", "SUBMIT_STOPPED", "GATEWAY_CLOSED", "UNKNOWN")

#: Attributes of the orchestrator's run that submitted the application, by the name in the record.
_PARENT = {
    "parentRun": "openlineage.parent.run_id",
    "parentNamespace": "openlineage.parent.job_namespace",
    "parentJob": "openlineage.parent.job_name",
    "rootRun": "openlineage.root_parent.run_id",
    "rootNamespace": "openlineage.root_parent.job_namespace",
    "rootJob": "openlineage.root_parent.job_name",
    "lineageContext": "openlineage.context",
}
#: Name that Spark gives to the driver's container in cluster mode, unless a pod template contains another.
_CONTAINER = "spark-kubernetes-driver"


def _pod(links: Mapping[str, str]) -> dict[str, AttributeValue | None]:
    """Return the driver's place on Kubernetes; empty outside Kubernetes."""
    if "pod" not in links:
        return {}
    return {
        "k8s.pod.name": links["pod"],
        "k8s.namespace.name": links.get("namespace"),
        "k8s.node.name": links.get("node"),
        "k8s.container.name": links.get("container") or (_CONTAINER if "submitInDriver" in links else None),
    }


_NO_TAGS: Mapping[str, AttributeValue] = {}


class Applications:
    """The status of the driver's application.

    Args:
        diagnostics: analyses exceptions.
        standing: the failures that stand.
        pipelines: know how the pipeline that the application runs ended. Its command stops the application after a
            failure, too, so that the end of the application alone is no evidence.
        tags: environment and tags, which are attributes of all events.
        settings: names of the settings that the start reports.

    Attributes:
        name: the application's name, as used in event bodies.
        scope_variables: attributes of all events.
        prefix: prefix of the bodies of events about a part of the application.
        status: the application's status.
    """

    def __init__(
        self,
        diagnostics: Diagnostics,
        standing: StandingFailures,
        pipelines: Pipelines,
        tags: Mapping[str, AttributeValue] = _NO_TAGS,
        settings: Sequence[str] = (),
    ) -> None:
        self.illegal = 0
        self._standing = standing
        self._pipelines = pipelines
        self._diagnostics = diagnostics
        self._tags = tags
        self._settings = settings
        self.scope_variables: dict[str, AttributeValue] = {}
        self._hash = _hash(None, None)
        self.name = "?"
        self.prefix = ""
        self.status = Status()

    def assume(self, app_id: str, attempt_id: str | None) -> None:
        """Set the id and name of an application whose start was not recorded."""
        self.name = app_id
        self.prefix = f"{app_id}: "
        self._hash = _hash(app_id, attempt_id)
        self.scope_variables = present({"spark.app.id": app_id, "spark.app.attempt_id": attempt_id, **self._tags})

    def started(self, record: ApplicationStart) -> Iterator[Draft]:
        """Report the start, and add the application's attributes to all later events."""
        if not self.status.become("RUNNING"):
            self.illegal += 1
            return
        self.name = record.app_name
        self._diagnostics.code = UserCode(record.command, record.main_class, record.py_files, record.namespaces)
        self._diagnostics.settings = record.settings
        name = record.app_name or record.app_id
        self.prefix = f"{name}: " if name else ""
        self._hash = _hash(record.app_id, record.attempt_id)
        self.scope_variables = present(
            {
                "spark.app.id": record.app_id,
                "spark.app.name": record.app_name,
                "spark.app.attempt_id": record.attempt_id,
                "spark.pipeline.name": record.pipeline,
                "spark.user": record.user,
                "spark.version": record.spark_version or None,
                "host.name": record.host or None,
                **_pod(record.links),
                **self._tags,
            }
        )
        parent: dict[str, AttributeValue | None] = {name: record.links.get(link) for link, name in _PARENT.items()}
        compared: dict[str, AttributeValue | None] = {
            f"spark.setting.{key.removeprefix('spark.')}": record.settings.get(key) for key in self._settings
        }
        body = f"Application '{self.name}' started"
        yield _change(None, "RUNNING", record.time, body, Severity.INFO, {**parent, **compared})

    def ended(self, record: ApplicationEnd, failed: Sequence[Run], running: Sequence[str]) -> Iterator[Draft]:
        """Report that the application has ended; the status is ENDED if the outcome is unknown.

        Args:
            record: the termination that the shim detected.
            failed: the failed runs of queries, the latest first.
            running: the queries and jobs that still run. Spark cancels them after its last callback, so the last event
                of the application names them.
        """
        old, (new, how) = self.status.value, outcome(record)
        pipeline = self._pipelines.outcome()
        if pipeline is not None and not exit_code(record) and record.ending in _OF_COMMAND:
            yield from self._pipeline_ended(record, running, pipeline)
            return
        evidence = self._evidence(record)
        before = self._standing.last
        if before is None and record.shell_error and evidence is not None:
            before = StandingFailure("the last statement", "the last statement failed", evidence, record.time)
        if before is not None and before.is_of_end and record.exit_signal:
            before = None
        is_doubtful = new in _DOUBTFUL and before is not None and not is_known(record)
        if is_doubtful:
            new, how = "ENDED", "ended" if new == "FINISHED" else how.removesuffix("; its outcome is unknown")
        if not self.status.become(new):
            self.illegal += 1
            return
        hints = [f"query '{run.title}' failed" for run in failed if run.status.value == "FAILED"]
        if before is not None and before.run_id is None and not before.is_of_end:
            hints.append(before.sentence)
        details: dict[str, AttributeValue | None] = {
            "spark.app.end_reason": record.ending,
            "spark.app.exit_code": exit_code(record),
            "spark.app.exit_signal": record.exit_signal,
            "spark.app.exit_caller": record.exit_caller,
            "spark.app.outcome_hint": "; ".join(hints) or None,
        }
        body = f"Application '{self.name}' {how}{_while(running)}"
        if hints:
            body += f" ({', '.join(hints)})"
        query = self._failed_query(record, evidence, failed, running) if new == "FAILED" else None
        if query is not None:
            details |= {"failure.query.name": query.name or query.query_id, "failure.query.run_id": query.run_id}
        severity = Severity.WARN if new == "CANCELLED" or record.ending == "PYTHON_DIED" else Severity.INFO
        yield _change(old, new, record.time, body, severity, details)
        if new == "FAILED" or (record.exit_signal and record.exit_signal not in _ASKED):
            yield self._failure(record, how, evidence, query, details)
        elif is_doubtful:
            how = how if record.ending == "PYTHON_DIED" else "ended"
            yield from _doubt(before, record.time, how, details)

    def _pipeline_ended(
        self, record: ApplicationEnd, running: Sequence[str], pipeline: PipelineOutcome
    ) -> Iterator[Draft]:
        old = self.status.value
        if not self.status.become(pipeline.status):
            self.illegal += 1
            return
        details: dict[str, AttributeValue | None] = {
            "spark.app.end_reason": record.ending,
            "spark.app.exit_code": exit_code(record),
        }
        body = f"Application '{self.name}' {pipeline.how}{_while(running)}"
        severity = Severity.WARN if pipeline.status == "CANCELLED" else Severity.INFO
        yield _change(old, pipeline.status, record.time, body, severity, details)
        if pipeline.status == "FAILED":
            unknown: dict[str, AttributeValue | None] = {
                "error.type": "_OTHER",
                "failure.class": UNKNOWN,
                "failure.fingerprint": fingerprint("_OTHER", pipeline.how, None),
            }
            body = f"Application {pipeline.how}: {pipeline.cause}"
            about = {**details, **unknown, **pipeline.attributes}
            yield failure("application", (), body, Severity.ERROR, record.time, about)

    def _failure(
        self,
        record: ApplicationEnd,
        how: str,
        evidence: Diagnosis | None,
        query: Run | None,
        details: dict[str, AttributeValue | None],
    ) -> Draft:
        """Return the event of a failed application: an alarm, unless the failure of its query is the alarm."""
        before = self._standing.last
        if before is not None and before.is_of_end:
            before = None
        if query is not None and query.failure is not None:
            word = "after" if evidence is None else "because"
            found = query.failure.diagnosis.attributes
            body = f"Application {how} {word} {query.failure.sentence}: {query.failure.diagnosis.summary}"
            return failure("application", (), body, Severity.INFO, record.time, {**details, **found})
        if evidence is not None:
            body = f"Application {how}: {evidence.summary}"
            if before is not None and same_cause(before.diagnosis.root_cause, evidence.root_cause):
                body = f"Application {how}: {before.sentence}: {evidence.summary}"
            elif before is not None:
                body += f" (after {before.sentence}: {before.diagnosis.summary})"
            return failure("application", (), body, Severity.ERROR, record.time, {**details, **evidence.attributes})
        body = f"Application {how}{': cause unknown' if exit_code(record) else ''}"
        details |= {"error.type": record.ending, "failure.class": UNKNOWN}
        details["failure.fingerprint"] = fingerprint(record.ending, "", None)
        if before is not None:
            earlier = lasting(max(0, record.time - before.at))
            body += f"; last failure before: {before.title}, {earlier} earlier: {before.diagnosis.summary}"
            details |= _preceding(before, record.time)
        return failure("application", (), body, Severity.ERROR, record.time, details)

    def _evidence(self, record: ApplicationEnd) -> Diagnosis | None:
        """Return the analysis of the exception that ended the program; None if it is unknown."""
        if record.failure is not None:
            return self._standing.named_alike(self._diagnostics.of(record.failure))
        if record.shell_error and record.exit_code != 0:
            return self._standing.named_alike(self._diagnostics.of_text(record.shell_error.strip()))
        return None

    def _failed_query(
        self, record: ApplicationEnd, evidence: Diagnosis | None, failed: Sequence[Run], running: Sequence[str]
    ) -> Run | None:
        """Return the query whose failure ended the application; None if there is none, or if it is unknown.

        Without other evidence, it is the query that was the last thing running, if the application ended soon after it.
        """
        if evidence is not None:
            trace = str(evidence.attributes.get("exception.stacktrace", ""))
            for run in failed:
                cause = "" if run.failure is None else run.failure.diagnosis.root_cause
                if run.run_id in trace or same_cause(cause, evidence.root_cause):
                    return run
            return None
        before = self._standing.last
        if before is None or before.run_id is None or before.is_followed or running:
            return None
        is_soon = -_BACKLOG <= record.time - before.at <= _SOON_AFTER
        return next((run for run in failed if run.run_id == before.run_id), None) if is_soon else None

    def lost(self, at: int, orderly: bool, running: Sequence[str], how: str) -> Iterator[Draft]:
        """Report a driver that exited without a record of its exit: ENDED after a JVM shutdown, else LOST."""
        old = self.status.value
        if old is None or not self.status.become("ENDED" if orderly else "LOST"):
            return
        if orderly:
            body = f"Application '{self.name}' ended with its JVM; its outcome is unknown"
            details: dict[str, AttributeValue | None] = {"spark.app.end_reason": "JVM_SHUTDOWN"}
            yield _change(old, "ENDED", at, body, Severity.INFO, details)
            yield from _doubt(self._standing.last, at, "ended", details)
            return
        body, before = f"Application '{self.name}' is lost: {how}{_while(running)}", self._standing.last
        if before is not None:
            body += f" (before that, {before.sentence}: {before.diagnosis.summary})"
        yield _change(old, "LOST", at, body, Severity.FATAL, {"spark.app.end_reason": "DRIVER_DIED"})

    def event_id(self, name: str, key: tuple[str | int, ...]) -> str:
        """Return the id of the application's event with a name and a key; the same in a live run and in a replay."""
        # Every event has an id, so hash the part that all events share only once.
        fact = self._hash.copy()
        # Nearly all keys have three parts, and an f-string is the fastest way to join them.
        text = f"{name}\x1f{key[0]}\x1f{key[1]}\x1f{key[2]}" if len(key) == 3 else "\x1f".join((name, *map(str, key)))
        fact.update(text.encode("utf-8", "replace"))
        return fact.hexdigest()


def _doubt(
    before: StandingFailure | None, at: int, how: str, details: Mapping[str, AttributeValue | None]
) -> Iterator[Draft]:
    """Report an end with an unknown outcome after a failure that stands."""
    # A failed query is an alarm already, unless it failed because its program had ended.
    if before is not None and before.run_id is None:
        work = next(work for work in ("SQL execution", "statement", "query", "job") if work in before.title)
        what = f"its last {work} failed"
        if before.is_followed:
            group = before.work.partition("=")[2]
            what = f"{before.title} failed, and nothing in its job group '{group}' succeeded after it"
        body = f"Application {how} after {what}: {before.diagnosis.summary}; exit code unknown"
        about = {"error.type": "_OTHER", "failure.class": UNKNOWN, **_preceding(before, at)}
        yield failure("application", (), body, Severity.ERROR, at, {**details, **about})


#: What helps to act on a failure, also while it is only the last one before the end.
_CARRIED = (
    *("failure.data.file", "failure.data.partition", "failure.data.topic", "failure.data.topic_partition"),
    *("failure.data.offset", "failure.recommendation", "failure.recommendation.evidence"),
)


def _preceding(failed: StandingFailure, at: int) -> dict[str, AttributeValue | None]:
    """Return attributes of the failure that preceded the end; whether it caused the end is unknown."""
    found = failed.diagnosis.attributes
    return {
        "failure.fingerprint": found.get("failure.fingerprint"),
        "failure.preceding.work": failed.title,
        "failure.preceding.error_type": failed.diagnosis.error_type,
        "failure.preceding.root_cause": found.get("failure.root_cause"),
        "failure.preceding.location": found.get("failure.location"),
        "failure.preceding.class": found.get("failure.class"),
        "failure.preceding.seconds": max(0, at - failed.at) / 1000,
        **{key: found.get(key) for key in _CARRIED},
    }


def named(body: str, prefix: str) -> str:
    """Return the body of an event with the application's name first, for files shared by applications."""
    if body[:1].islower():
        return prefix + body if prefix else capitalized(body)
    if not prefix or body.startswith("Application '"):
        return body
    # Keep the capitals of "SQL execution".
    return f"{prefix}{body if body[1:2].isupper() else body[:1].lower() + body[1:]}"


def _while(running: Sequence[str]) -> str:
    more = f" and {len(running) - _MOST_NAMED:,} more" if len(running) > _MOST_NAMED else ""
    return f" while running {', '.join(running[:_MOST_NAMED])}{more}" if running else ""


def _hash(app_id: str | None, attempt_id: str | None) -> blake2b:
    """Return the hash of the part that the ids of all events of an application share."""
    identity = f"{app_id or ''}\x1f{attempt_id or ''}\x1f"
    return blake2b(identity.encode("utf-8", "replace"), digest_size=16)


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
