"""Translate events into OpenLineage run events.

A run begins with START. The last event of a run is COMPLETE if the run is known to have succeeded, FAIL (with the
error) if it failed, and ABORT if it was cancelled or its outcome is unknown. During a run, commits and heartbeats
become RUNNING events, at most one in each interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, metadata
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    error_message_run,
    job_type_job,
    nominal_time_run,
    parent_run,
    processing_engine_run,
)

from spark_events._version import __version__
from spark_events.event import Event
from spark_events.event.heartbeat import HEARTBEAT
from spark_events.event.text import rfc3339
from spark_events.reporters.openlineage.openlineage_config import OpenLineageConfig

__all__ = ["Runs"]

#: State of a run, by the new status in a status change. FAILED is missing, because the JobFailureEvent that follows
#: contains the error.
_STATES = {
    "RUNNING": RunState.START,
    "FINISHED": RunState.COMPLETE,
    "CANCELLED": RunState.ABORT,
    "ENDED": RunState.ABORT,
    "LOST": RunState.FAIL,
}


def _producer() -> str:
    """Return the project's URL, which identifies the producer of OpenLineage events."""
    try:
        urls = metadata("spark-events").get_all("Project-URL") or []
    except PackageNotFoundError:
        urls = []
    return next((url.partition(", ")[2] for url in urls if url.startswith("Homepage")), "urn:spark-events")


class Runs:
    """Run events of one application.

    Args:
        config: namespace, interval, nominal time.
    """

    def __init__(self, config: OpenLineageConfig) -> None:
        self._config = config
        self._producer = _producer()
        # Facets of the application's START event; empty after a restart of the sidecar. OpenLineage merges the facets
        # of all events of a run.
        self._parent: dict[str, Any] = {}
        # Attributes of the running queries' start events, by run id.
        self._queries: dict[str, Event] = {}
        # Time of each run's latest event, in milliseconds since the epoch.
        self._latest: dict[str, int] = {}

    def of(self, event: Event) -> Iterator[RunEvent]:
        """Yield the run events for one event, in order; most events produce none."""
        about = event.attributes
        entity = about.get("spark.entity")
        if event.name == HEARTBEAT:
            yield from self._running(event, self._application_run(about))
        elif event.name == "BatchCommitEvent" and "spark.streaming.query.run_id" in about:
            yield from self._running(event, str(about["spark.streaming.query.run_id"]))
        elif event.name == "JobStatusChangeEvent" and entity in ("application", "query"):
            state = _STATES.get(str(about.get("spark.status.new")))
            if state is not None:
                yield from self._changed(event, state)
        elif about.get("spark.events.test"):
            # An event from `spark-events send-test` becomes a run without a state.
            yield self._event(event, RunState.OTHER, str(uuid5(NAMESPACE_URL, event.event_id)))
        elif event.name == "JobFailureEvent" and entity in ("application", "query"):
            yield from self._changed(event, RunState.FAIL)

    def _running(self, event: Event, run: str) -> Iterator[RunEvent]:
        if event.observed_ts_millis - self._latest.get(run, 0) >= 1000 * self._config.interval:
            yield self._event(event, RunState.RUNNING, run)

    def _changed(self, event: Event, state: RunState) -> Iterator[RunEvent]:
        about = event.attributes
        if about["spark.entity"] == "query":
            run = str(about.get("spark.streaming.query.run_id"))
            if state is RunState.START:
                self._queries[run] = event
            else:
                self._queries.pop(run, None)
        else:
            run = self._application_run(about)
            if state is not RunState.START:
                # End the runs of the running queries here, because Spark stops the queries after its last callback.
                ended = RunState.COMPLETE if state is RunState.COMPLETE else RunState.ABORT
                for query, started in self._queries.items():
                    yield self._event(started, ended, query, event.observed_ts_millis)
                self._queries.clear()
        yield self._event(event, state, run)

    def _event(self, event: Event, state: RunState, run: str, at: int | None = None) -> RunEvent:
        about = event.attributes
        at = event.observed_ts_millis if at is None else at
        self._latest[run] = at
        is_query = "spark.streaming.query.run_id" in about
        application = str(about.get("spark.app.name") or about.get("spark.app.id") or event.name)
        name = application
        facets: dict[str, Any] = {}
        if is_query:
            query = about.get("spark.streaming.query.name") or about.get("spark.streaming.query.id")
            name = f"{application}.{query}"
            facets["parent"] = self._parent_of_query(about, application)
        else:
            facets.update(self._of_application(event, state))
        if "spark.version" in about:
            facets["processing_engine"] = processing_engine_run.ProcessingEngineRunFacet(
                version=str(about["spark.version"]), name="spark", openlineageAdapterVersion=__version__
            )
        if state is RunState.FAIL:
            facets["errorMessage"] = _error(event)
        kind = job_type_job.JobTypeJobFacet(
            processingType="STREAMING" if is_query else "BATCH",
            integration="SPARK",
            jobType="QUERY" if is_query else "APPLICATION",
        )
        return RunEvent(
            eventType=state,
            eventTime=rfc3339(at),
            producer=self._producer,
            run=Run(runId=run, facets=facets),
            job=Job(namespace=self._config.namespace, name=name, facets={"jobType": kind}),
        )

    def _application_run(self, about: Mapping[str, Any]) -> str:
        return str(uuid5(NAMESPACE_URL, f"{about.get('spark.app.id')} {about.get('spark.app.attempt_id')}"))

    def _of_application(self, event: Event, state: RunState) -> dict[str, Any]:
        if state is RunState.START:
            start = self._config.nominal_time or rfc3339(event.observed_ts_millis)
            self._parent = {"nominalTime": nominal_time_run.NominalTimeRunFacet(nominalStartTime=start)}
            if (parent := _parent(event.attributes)) is not None:
                self._parent["parent"] = parent
        return dict(self._parent)

    def _parent_of_query(self, about: Mapping[str, Any], application: str) -> parent_run.ParentRunFacet:
        run, namespace = self._application_run(about), self._config.namespace
        above = self._parent.get("parent")
        root = None if above is None else above.root
        return parent_run.ParentRunFacet(
            run=parent_run.Run(runId=run), job=parent_run.Job(namespace=namespace, name=application), root=root
        )


def _parent(about: Mapping[str, Any]) -> parent_run.ParentRunFacet | None:
    """Return the run that submitted the application; None unless the settings describe it completely."""

    def given(whose: str) -> tuple[str, str, str] | None:
        keys = (f"openlineage.{whose}.{part}" for part in ("run_id", "job_namespace", "job_name"))
        values = [str(about.get(key) or "") for key in keys]
        return (values[0], values[1], values[2]) if all(values) else None

    parent = given("parent")
    if parent is None:
        return None
    run, namespace, name = given("root_parent") or parent
    return parent_run.ParentRunFacet(
        run=parent_run.Run(runId=parent[0]),
        job=parent_run.Job(namespace=parent[1], name=parent[2]),
        root=parent_run.Root(run=parent_run.RootRun(runId=run), job=parent_run.RootJob(namespace=namespace, name=name)),
    )


def _error(event: Event) -> error_message_run.ErrorMessageRunFacet:
    about = event.attributes
    is_python = ".py:" in str(about.get("failure.location", ""))
    trace = about.get("exception.stacktrace")
    return error_message_run.ErrorMessageRunFacet(
        message=str(about.get("failure.root_cause") or event.body),
        programmingLanguage="PYTHON" if is_python else "JAVA",
        stackTrace=None if trace is None else str(trace),
    )
