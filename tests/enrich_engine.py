"""Run the enrichment engine in tests without Spark."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from typing import Any

from spark_events.enrichment.engine import process
from spark_events.enrichment.engine.calls import Chunk, Part
from spark_events.enrichment.engine.engine import Definition, Engine
from spark_events.enrichment.engine.job_share import JobShare
from spark_events.enrichment.engine.ledger import JobLimits, Ledger, leased
from spark_events.enrichment.plan import Plan

__all__ = ["Run", "chunks_of", "definition", "end", "new_process", "rows_of"]

_NUMBERS = itertools.count()
_ROW_BYTES = 100
_SECONDS = 10.0


def definition(**changes: str) -> Definition:
    """Return a definition that no earlier run of this process has used."""
    number = str(next(_NUMBERS))
    return Definition(**{"calls": number, "answers": number, "resource": number, "batch": number, **changes})


def chunks_of(
    rows: Iterable[Any],
    size: int = 100,
    *,
    key: Callable[[Any], Hashable] | None = None,
    request: Callable[[Any], Hashable] | None = None,
    known: dict[Any, Any] | None = None,
) -> Iterator[Chunk]:
    """Split rows into chunks, where the idempotency key of a row is its ``repr``."""
    left = iter(rows)
    while part := list(itertools.islice(left, size)):
        yield Chunk(
            part,
            lambda index, part=part: repr(part[index]),  # type: ignore[misc]
            _ROW_BYTES * len(part),
            keys=[key(row) for row in part] if key else None,
            requests=[request(row) for row in part] if request else None,
            known={index: known[row] for index, row in enumerate(part) if row in known} if known else None,
        )


def rows_of(answered: Chunk | Part) -> list[Any]:
    """Return the rows of a chunk, or of a part of a chunk."""
    if isinstance(answered, Chunk):
        return list(answered.rows)
    return [answered.chunk.rows[row] for row in answered.rows]


@contextlib.contextmanager
def new_process() -> Iterator[None]:
    """Run code as in a new worker process, and close the state of this process afterwards."""
    previous = process.exchange(None)
    try:
        yield
    finally:
        used = process.exchange(previous)
        if used is not None:
            end(used)


def end(used: process.Process) -> None:
    """Close the resources of a worker process, and stop its loop."""
    used.background.submit(used.resources.close_unused()).result(_SECONDS)
    used.background.close(_SECONDS)


class Run:
    """One run of the engine with a user's function.

    Args:
        fn: the user's function.
        made: result of :func:`definition`; default: a new definition.
        job: limits that a ledger in this process leases to :meth:`of`, as for a task that the driver leases none.
        plan: arguments of the plan.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        made: Definition | None = None,
        job: JobLimits | None = None,
        **plan: Any,
    ) -> None:
        self._job = job
        self._share = None if job is None else JobShare(job, None)
        self.engine = Engine(Plan(fn, **plan), made or definition(), share=self._share)

    def begin(self, chunks: Iterable[Chunk]) -> Generator[tuple[Chunk | Part, list[Any]], None, None]:
        """Return an iterator over the answers. A test may close the iterator early."""
        answers = self.engine.run(chunks)
        assert isinstance(answers, Generator)
        return answers

    def of(self, chunks: Iterable[Chunk] | Sequence[Any]) -> list[Any]:
        """Return the answers for chunks or rows in order, and verify the order of the chunks."""
        pulled: list[Chunk] = []

        def watched() -> Iterator[Chunk]:
            for chunk in chunks if not isinstance(chunks, Sequence) else chunks_of(chunks):
                pulled.append(chunk)
                yield chunk

        answers: list[Any] = []
        with self._leasing():
            for number, (chunk, part) in enumerate(self.engine.run(watched())):
                assert chunk is pulled[number]
                assert len(part) == len(chunk.rows)
                answers += part
        return answers

    def _leasing(self) -> contextlib.AbstractContextManager[None]:
        if self._job is None or self._share is None:
            return contextlib.nullcontext()
        lease = functools.partial(leased, Ledger(self._job), 0)
        return process.current_process().background.running(functools.partial(self._share.run, lease))

    def as_answered(self, chunks: Iterable[Chunk] | Sequence[Any]) -> list[tuple[Any, Any]]:
        """Return pairs of row and answer, in the order in which the engine yields them."""
        given = chunks if not isinstance(chunks, Sequence) else chunks_of(chunks)
        return [pair for part, answers in self.engine.run(given) for pair in zip(rows_of(part), answers, strict=True)]

    @property
    def numbers(self) -> dict[str, Any]:
        """Return the engine's counters."""
        return self.engine.statistics()
