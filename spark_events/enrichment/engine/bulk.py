"""One call for several rows."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from spark_events.enrichment.engine.calls import Call, GroupCall, RowBatch
from spark_events.enrichment.engine.failure import AttemptError, RowFailure, failure_of
from spark_events.enrichment.engine.feed import Taken
from spark_events.enrichment.engine.verdicts import NotAcceptedError, Verdict, verdict_on
from spark_events.enrichment.plan import Retry

__all__ = ["Accept", "Groups", "Misfit", "accept_group", "accept_one"]

#: Why what the function gave for a row is no answer; None: it is one.
Misfit: TypeAlias = Callable[[Any], RowFailure | None]
#: What a call has returned becomes its answer, or a failure is raised; with when its first attempt began, of
#: ``time.monotonic``.
Accept: TypeAlias = Callable[[Call, Any, float], Any]


class Groups:
    """Rows by so many, across chunks; the last few only when nothing more comes.

    Args:
        size: rows of a call.
        on_take: called when ``waiting`` has become less.
    """

    def __init__(self, size: int, on_take: Callable[[], None]) -> None:
        self._on_take = on_take
        self._size = size
        self._rows: deque[tuple[RowBatch, int]] = deque()
        self._flushed = 0
        self.waiting = self.held = 0

    def add(self, batch: RowBatch, indices: Sequence[int]) -> None:
        """Rows to be called, in their order."""
        self._rows.extend((batch, index) for index in indices)
        self._count()

    def take(self) -> Taken | None:
        """The next full call, or what was flushed, and what has come after that while there is room."""
        if not self.waiting:
            return None
        most = min(self._size, len(self._rows))
        places = [self._rows.popleft() for _ in range(most)]
        self._flushed = max(0, self._flushed - most)
        self._count()
        self._on_take()
        return *places[0], GroupCall(places)

    def ended(self, call: Call, failure: RowFailure | None, *, abandoned: bool = False) -> None:
        """Groups do not wait for each other."""

    def flush(self) -> None:
        """What is here goes, full or not."""
        self._flushed = len(self._rows)
        self._count()

    def _count(self) -> None:
        """Calls that could begin now, and rows that wait for others to fill their call."""
        full, rest = divmod(len(self._rows), self._size)
        last = self._flushed > full * self._size
        self.waiting, self.held = full + last, 0 if last else rest


def accept_one(retry: Retry | None, misfit: Misfit | None) -> Accept:
    """For calls of one row: asks ``on_result`` whether the answer is one, then whether it fits."""
    again = retry.on_result if retry is not None else None

    def accept(call: Call, answer: Any, began: float) -> Any:
        if again is not None and again(answer):
            raise NotAcceptedError("on_result never accepted what the function returned")
        # No error: the destination has answered, and another attempt would bring the same.
        return answer if misfit is None else misfit(answer) or answer

    return accept


def accept_group(retry: Retry | None, misfit: Misfit | None) -> Accept:
    """For calls of several rows: a result for each, in order; those that are exceptions have failed alone."""
    again = retry.on_result if retry is not None else None

    def judged(result: Any) -> AttemptError | None:
        """What is wrong with a row's result; None: nothing."""
        error: BaseException | None = result if isinstance(result, BaseException) else None
        try:
            if error is None and again is not None and again(result):
                error = NotAcceptedError("on_result never accepted what the function returned")
            if error is None:
                return None
            return AttemptError(*verdict_on(error, retry))
        except BaseException as broken:
            # The user's `on` or `on_result` raised: that is what is to be seen, not what it was asked about.
            return AttemptError(broken, Verdict(retryable=False))

    def accept(call: Call, results: Any, began: float) -> Any:
        assert isinstance(call, GroupCall)
        places = list(call.places())
        if not isinstance(results, Sequence) or isinstance(results, (str, bytes)) or len(results) != len(places):
            given = f"{len(results)} results" if isinstance(results, Sequence) else type(results).__name__
            raise TypeError(f"fn must return a list with one result for each of its {len(places)} rows, not {given}")
        # Only when all have been looked at the call is touched: else some rows would have an answer and a failure.
        answers: list[tuple[RowBatch, int, Any]] = []
        left: list[tuple[RowBatch, int, RowFailure]] = []
        first: BaseException | None = None
        elapsed = time.monotonic() - began
        for (batch, index), result in zip(places, results, strict=True):
            wrong = judged(result)
            if wrong is None:
                answers.append((batch, index, result if misfit is None else misfit(result) or result))
                continue
            failure = failure_of(wrong, call.attempt, elapsed)
            if wrong.verdict.retryable:
                left.append((batch, index, failure))
                first = first or wrong.cause
            else:
                answers.append((batch, index, failure))
        call.answers += answers
        call.narrow(left)
        if first is not None:
            raise first
        return None

    return accept
