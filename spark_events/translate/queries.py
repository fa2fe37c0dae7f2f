"""Streaming queries. A query keeps its id across restarts; each run has its own run id."""

from __future__ import annotations

import dataclasses
import re
from collections import OrderedDict
from collections.abc import Iterator

import msgspec

from spark_events.event import AttributeValue, Severity
from spark_events.records.types import QueryStarted, QueryTerminated
from spark_events.translate.backlogs import Backlogs
from spark_events.translate.bounded import put
from spark_events.translate.clients import with_client
from spark_events.translate.draft import Draft, iso_millis, present
from spark_events.translate.entities import failure, status_change
from spark_events.translate.failures import Diagnosis, Diagnostics
from spark_events.translate.job_tags import job_tags
from spark_events.translate.pipelines import Pipelines
from spark_events.translate.run_batches import RunBatches
from spark_events.translate.standing_failures import StandingFailure, StandingFailures, same_cause, work_of
from spark_events.translate.status import Status

__all__ = ["Queries", "Run"]

#: What Py4J reports if a query calls its Python program, for ``foreachBatch``, and the program has ended.
_PROGRAM_ENDED = re.compile(
    r"\bpy4j\.Py4J\w*Exception: (?:Received empty command|Error while sending a command"
    r"|(?:Error while obtaining|Cannot obtain) a new communication channel)"
)
#: Maximum number of finished or superseded runs to keep for late records.
_REMEMBERED = 1_000
#: Exceptions of a thread that waited for another thread, which had failed or was stopped.
_SECONDARY = re.compile(
    r"java\.util\.concurrent\.(?:TimeoutException|CancellationException)|java\.lang\.InterruptedException"
    r"|java\.nio\.channels\.ClosedByInterruptException|org\.apache\.spark\.rpc\.Rpc\w+Exception"
)


class Run:
    """One run of one query, whose state every part of the translation reads from here."""

    def __init__(self, query_id: str, run_id: str, name: str | None, number: int) -> None:
        self.query_id = query_id
        self.run_id = run_id
        self.name = name
        self.number = number
        self.status = Status()
        self.batches = RunBatches()
        self.watermark_policy = "min"
        self.backlogs = Backlogs()
        self.failure: StandingFailure | None = None
        self.failed_job: StandingFailure | None = None
        self.tags = ""
        self.flow: dict[str, AttributeValue] = {}

    def follow(self, earlier: Run) -> None:
        """Copy the state that the query's checkpoint carries over from the preceding run."""
        self.batches.follow(earlier.batches)
        self.watermark_policy = earlier.watermark_policy

    @property
    def title(self) -> str:
        """The query's name, or the beginning of its id."""
        return self.name or self.query_id[:8]

    @property
    def subject(self) -> str:
        """The query in the body of its events, with its client on a shared server."""
        return with_client(f"query '{self.title}'", job_tags(self.tags).attributes)

    @property
    def scope_variables(self) -> dict[str, AttributeValue | None]:
        """The attributes of every event of this query."""
        return {
            "spark.streaming.query.id": self.query_id,
            "spark.streaming.query.run_id": self.run_id,
            "spark.streaming.query.name": self.name,
            **job_tags(self.tags).attributes,
            **self.flow,
        }

    @property
    def work(self) -> str:
        """The query, as the work that must succeed after a failure."""
        return work_of(present(self.scope_variables))


class Queries:
    """All runs of all queries of the application.

    Args:
        diagnostics: analyses exceptions.
        standing: the failures that stand.
        pipelines: to find the flow of a pipeline that a query runs.
    """

    def __init__(self, diagnostics: Diagnostics, standing: StandingFailures, pipelines: Pipelines) -> None:
        self.illegal = 0
        self._pipelines = pipelines
        self._standing = standing
        self._diagnostics = diagnostics
        self._runs: OrderedDict[str, Run] = OrderedDict()
        self._latest: dict[str, Run] = {}
        # Query of each session that Spark has created for a query.
        self._sessions: OrderedDict[str, str] = OrderedDict()

    def run(self, query_id: str, run_id: str, name: str | None = None) -> Run:
        """Return a run; create the run if its start was not reported."""
        run = self._runs.get(run_id)
        if run is None:
            earlier = self._latest.get(query_id)
            run = Run(query_id, run_id, name, 1 if earlier is None else earlier.number + 1)
            if earlier is not None:
                run.follow(earlier)
            self._runs[run_id] = self._latest[query_id] = run
            self._forget_some()
        return run

    def of_query(self, query_id: str | None) -> Run | None:
        """Return the latest run of a query."""
        return self._latest.get(query_id or "")

    def of_session(self, session: str) -> str | None:
        """Return the id of the query for which Spark has created a session; None for other sessions."""
        return self._sessions.get(session)

    def owns_session(self, query_id: str, session: str) -> None:
        """Note that Spark has created a session for a query."""
        put(self._sessions, session, query_id, _REMEMBERED)

    def running(self) -> list[Run]:
        """Return the runs of the running queries, at most one of each query.

        Spark allows one run of a query at a time. If an earlier run has the status RUNNING, the record of its end was
        lost.
        """
        return [run for run in self._latest.values() if run.status.value == "RUNNING"]

    def running_titles(self) -> list[str]:
        """Return the titles of the running queries."""
        return [run.title for run in self.running()]

    def failed(self) -> list[Run]:
        """Return the failed runs whose failures are known, the latest failure first."""
        found = [(run.failure.at, run) for run in self._latest.values() if run.failure is not None]
        return [run for _, run in sorted(found, key=lambda one: one[0], reverse=True)]

    def started(self, record: QueryStarted) -> Iterator[Draft]:
        """Report that a run of a query started, whether first run or restart."""
        earlier = self._latest.get(record.id)
        run = self.run(record.id, record.run_id, record.name)
        run.name, run.tags = record.name, record.tags or run.tags
        run.flow = self._pipelines.of_query(run.name, run.tags)
        if run.status.value is not None:
            self.illegal += 1
            return
        run.status.become("RUNNING")
        again = earlier is not None and earlier is not run
        # Spark did not report that the earlier run ended, so the run's status is unknown.
        old = earlier.status.value if earlier is not None and again and earlier.status.is_over else None
        body = f"{run.subject} {'restarted' if again else 'started'}"
        details: dict[str, AttributeValue] = (
            {"spark.streaming.query.restart": True, "spark.streaming.query.run_number": run.number} if again else {}
        )
        yield _change(run, old, iso_millis(record.timestamp, record.at), body, Severity.INFO, details)

    def terminated(self, record: QueryTerminated, at: int) -> Iterator[Draft]:
        """Report that a run ended: FAILED with an exception, else FINISHED."""
        run = self.run(record.id, record.run_id)
        old = run.status.value
        if not run.status.become("FINISHED" if record.exception is None else "FAILED"):
            self.illegal += 1
            return
        if record.exception is None:
            yield _change(run, old, at, f"{run.subject} finished", Severity.INFO, {})
            return
        found = self._standing.named_alike(self._diagnostics.of_text(record.exception, record.error_class))
        diagnosis = _with_cause(found, run.failed_job)
        failed = StandingFailure(f"query '{run.title}'", _sentence(run), diagnosis, at, run.work, run.run_id)
        is_alarm = _PROGRAM_ENDED.search(record.exception) is None
        if is_alarm:
            run.failure = failed
            self._standing.note(failed)
        elif self._standing.last is None:
            # The end of the program is the application's, which is the alarm if it is no success.
            self._standing.note(dataclasses.replace(failed, work="", run_id=None, is_of_end=True))
        body = f"{run.subject} went from {old or 'an unknown status'} to FAILED: {diagnosis.summary}"
        yield _change(run, old, at, body, Severity.INFO, {"error.type": diagnosis.error_type})
        yield _failure(run, at, diagnosis, is_alarm)

    def _forget_some(self) -> None:
        if len(self._runs) <= _REMEMBERED:
            return
        for run_id, run in self._runs.items():
            if run.status.is_over or self._latest.get(run.query_id) is not run:
                del self._runs[run_id]
                if self._latest.get(run.query_id) is run:
                    del self._latest[run.query_id]
                return


def _change(
    run: Run,
    old: str | None,
    at: int,
    body: str,
    severity: Severity,
    details: dict[str, AttributeValue],
) -> Draft:
    new = run.status.value or ""
    return status_change("query", (run.run_id, new), (old, new), body, severity, at, {**run.scope_variables, **details})


def _sentence(run: Run) -> str:
    batch = run.batches.under_way
    return f"{run.subject} failed" + ("" if batch is None else f" at batch {batch}")


def _with_cause(found: Diagnosis, job: StandingFailure | None) -> Diagnosis:
    """Return the analysis of the failed job of the run, if the query's own error only follows from that failure.

    A continuous query does not end with the exception of its job, but later, with the exception of a thread that waited
    in vain. An exception of the user's code, or any other exception, is the cause itself.
    """
    if job is None or same_cause(job.diagnosis.root_cause, found.root_cause) or "failure.location" in found.attributes:
        return found
    if not _SECONDARY.match(found.root_cause):
        return found
    summary = f"{job.diagnosis.summary} ({job.title} failed; the query then ended with {found.summary})"
    secondary: dict[str, AttributeValue] = {"failure.secondary_error": found.root_cause}
    return dataclasses.replace(job.diagnosis, summary=summary, attributes={**job.diagnosis.attributes, **secondary})


def _failure(run: Run, at: int, diagnosis: Diagnosis, is_alarm: bool) -> Draft:
    offsets = msgspec.json.encode(run.batches.committed_offsets).decode() if run.batches.committed_offsets else None
    details = {
        # Spark starts a failed flow of a pipeline again, up to a limit; whether it will is not known yet.
        "failure.will_retry": None if run.flow else False,
        **run.scope_variables,
        **diagnosis.attributes,
        "spark.batch.id": run.batches.under_way,
        "spark.streaming.query.committed_offsets": offsets,
    }
    why = "" if is_alarm else " because its Python program had ended"
    body = f"{_sentence(run)}{why}: {diagnosis.summary}"
    severity = Severity.INFO if not is_alarm else Severity.WARN if run.flow else Severity.ERROR
    return failure("query", (run.run_id,), body, severity, at, details)
