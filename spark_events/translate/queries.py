"""Streaming queries: a query keeps its id over restarts, each run of it has a run id of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from spark_events.bridge.records import QueryStarted, QueryTerminated
from spark_events.event import AttributeValue, Severity
from spark_events.translate.draft import Draft, iso_millis, present
from spark_events.translate.failures import Diagnosis, diagnose_text

__all__ = ["Queries", "Query"]

_SCOPE = "spark.streaming.query"


@dataclasses.dataclass(slots=True)
class Query:
    """One query, as its present or last run has it."""

    id: str
    run_id: str
    name: str | None
    status: str | None = None
    runs: int = 0
    last_committed_batch: int = -1
    last_batch_with_jobs: int = -1

    @property
    def batch_under_way(self) -> int | None:
        """The batch that the query was at, as far as its jobs or its commits tell."""
        after_commit = self.last_committed_batch + 1 if self.last_committed_batch >= 0 else -1
        batch = max(after_commit, self.last_batch_with_jobs)
        return batch if batch >= 0 else None

    @property
    def title(self) -> str:
        """For sentences: the name, or the beginning of the id where it has none."""
        return self.name or self.id[:8]

    @property
    def scope_variables(self) -> dict[str, AttributeValue | None]:
        """What every event of this query carries."""
        return {
            "spark.streaming.query.id": self.id,
            "spark.streaming.query.run_id": self.run_id,
            "spark.streaming.query.name": self.name,
        }


class Queries:
    """All queries of the application, by id; the run that is over stays known until the next begins."""

    def __init__(self) -> None:
        self._by_id: dict[str, Query] = {}

    def of(self, query_id: str, run_id: str, name: str | None = None) -> Query:
        """The query; one whose start was never seen is taken as it is."""
        query = self._by_id.get(query_id)
        if query is None or query.run_id != run_id:
            runs = 1 if query is None else query.runs + 1
            last_status = None if query is None else query.status
            query = self._by_id[query_id] = Query(query_id, run_id, name, last_status, runs)
        return query

    def with_run(self, run_id: str) -> Query | None:
        """The query of a run, as jobs name it by their job group."""
        return next((query for query in self._by_id.values() if query.run_id == run_id), None)

    def find(self, query_id: str) -> Query | None:
        """The query of an id."""
        return self._by_id.get(query_id)

    def running_names(self) -> list[str]:
        """Titles of the queries that run."""
        return [f"query '{query.title}'" for query in self._by_id.values() if query.status == "RUNNING"]

    def failed_names(self) -> list[str]:
        """Titles of the queries whose last run failed."""
        return [query.title for query in self._by_id.values() if query.status == "FAILED"]

    def started(self, record: QueryStarted) -> Iterator[Draft]:
        """A query runs, for the first time or again."""
        known = self._by_id.get(record.id)
        if known is not None and known.run_id == record.run_id and known.status is not None:
            return
        query = self.of(record.id, record.run_id, record.name)
        old, query.status = query.status, "RUNNING"
        again = query.runs > 1
        body = f"Query '{query.title}' {'restarted' if again else 'started'}"
        at = iso_millis(record.timestamp, record.at)
        restart: dict[str, AttributeValue] = {"query.restart": True, "query.run": query.runs} if again else {}
        yield _change(query, old, at, body, Severity.INFO, restart)

    def terminated(self, record: QueryTerminated) -> Iterator[Draft]:
        """A run is over: FAILED with an exception, FINISHED without."""
        query = self.of(record.id, record.run_id)
        if query.status in ("FINISHED", "FAILED"):
            return
        old = query.status
        if record.exception is None:
            query.status = "FINISHED"
            yield _change(query, old, record.at, f"Query '{query.title}' finished", Severity.INFO, {})
            return
        query.status = "FAILED"
        diagnosis = diagnose_text(record.exception, record.error_class)
        body = f"Query '{query.title}' went from {old or 'an unknown status'} to FAILED"
        yield _change(query, old, record.at, body, Severity.ERROR, {"error.type": diagnosis.error_type})
        body = f"Query '{query.title}' failed: {diagnosis.summary}"
        yield _failure(query, record.at, body, diagnosis)


def _change(
    query: Query,
    old: str | None,
    at: int,
    body: str,
    severity: Severity,
    details: dict[str, AttributeValue],
) -> Draft:
    new = query.status or ""
    return Draft(
        name="JobStatusChangeEvent",
        class_scope=_SCOPE,
        key=("query", query.run_id, new),
        body=body,
        severity=severity,
        observed_ts_millis=at,
        attributes=present(
            {
                "spark.entity": "query",
                "status.old": old,
                "status.new": new,
                **query.scope_variables,
                **details,
            }
        ),
    )


def _failure(query: Query, at: int, body: str, diagnosis: Diagnosis) -> Draft:
    return Draft(
        name="JobFailureEvent",
        class_scope=_SCOPE,
        key=("query", query.run_id),
        body=body,
        severity=Severity.ERROR,
        observed_ts_millis=at,
        attributes=present(
            {
                "spark.entity": "query",
                **query.scope_variables,
                **diagnosis.attributes,
                "spark.streaming.batch.id": query.batch_under_way,
            }
        ),
    )
