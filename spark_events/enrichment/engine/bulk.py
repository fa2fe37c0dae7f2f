"""Calls for several rows at once (``batch_size``)."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from spark_events.enrichment.engine.calls import Call, GroupCall, RowBatch
from spark_events.enrichment.engine.failure import AttemptError, RowFailure, failure_of
from spark_events.enrichment.engine.feed import Feed, Taken
from spark_events.enrichment.engine.verdicts import InvalidAnswerError, NotAcceptedError, Verdict, verdict_on
from spark_events.enrichment.settings import Retry

__all__ = ["Accept", "Groups", "Misfit", "accept_group", "accept_one", "checked"]

#: Function that checks the result for a row: returns the reason if the result is not a valid answer, or None.
Misfit: TypeAlias = Callable[[Any], RowFailure | None]
#: Function that converts the result of a call to its answer, or raises an error. The last argument is the start of the
#: first attempt, in seconds of the run's clock.
Accept: TypeAlias = Callable[[Call, Any, float], Any]


class Groups(Feed):
    """Feed that groups rows, even of different chunks, into calls of ``size`` rows; only a flush starts a smaller call.

    Args:
        size: rows per call.
        on_take: called with ``waiting`` when it has decreased.
    """

    def __init__(self, size: int, on_take: Callable[[int], None]) -> None:
        super().__init__(on_take)
        self._size = size
        self._rows: deque[tuple[RowBatch, int]] = deque()
        self._flushed = 0

    def add(self, batch: RowBatch, indices: Sequence[int]) -> None:
        """Add rows that need a call, in order."""
        self._rows.extend((batch, index) for index in indices)
        self._count()

    def take(self) -> Taken | None:
        """Return the next full call; after a flush, the call may be smaller."""
        if not self.waiting:
            return None
        most = min(self._size, len(self._rows))
        positions = [self._rows.popleft() for _ in range(most)]
        self._flushed = max(0, self._flushed - most)
        self._count()
        self._on_take(self.waiting)
        return *positions[0], GroupCall(positions), None

    def flush(self) -> None:
        """Release all added rows for calls, even if the last group is smaller."""
        self._flushed = len(self._rows)
        self._count()

    def _count(self) -> None:
        """Update the numbers of calls that can start now and of rows that wait for a full call."""
        full, rest = divmod(len(self._rows), self._size)
        last = self._flushed > full * self._size
        self.waiting, self.held_back = full + last, 0 if last else rest


def checked(convert: Callable[[Any], Any] | None, misfit: Misfit | None) -> Callable[[Any], Any]:
    """Return a function that converts a result to the answer, or to a failure if the result is not a valid answer."""

    def check(result: Any) -> Any:
        answer = result if convert is None else convert(result)
        return answer if misfit is None or isinstance(answer, RowFailure) else misfit(answer) or answer

    return check


def accept_one(retry: Retry | None, check: Callable[[Any], Any]) -> Accept:
    """Return the check for single-row calls; it applies ``on_result`` first, then the output's types."""
    again = retry.on_result if retry is not None else None
    on_invalid = retry is not None and retry.on_invalid

    def accept(call: Call, answer: Any, began: float) -> Any:
        if again is not None and again(answer):
            raise NotAcceptedError("on_result never accepted the function's result")
        answer = check(answer)
        if on_invalid and isinstance(answer, RowFailure):
            raise InvalidAnswerError(answer.message)
        # Return this failure and do not raise it: the destination has answered, and a retry would return the same
        # answer.
        return answer

    return accept


def accept_group(
    retry: Retry | None, check: Callable[[Any], Any], clock: Callable[[], float] = time.monotonic
) -> Accept:
    """Return the check for multi-row calls.

    Each row needs one result, in order; a result that is an exception fails only its row. If the destination has
    answered other rows of the call, such a failure is no sign of an outage or of an overload.
    """
    accept_row = accept_one(retry, check)

    def judged(call: Call, result: Any, began: float) -> Any:
        """Return the answer of a row's result, or the error."""
        try:
            if isinstance(result, BaseException):
                return AttemptError(*verdict_on(result, retry))
            try:
                return accept_row(call, result, began)
            except NotAcceptedError as error:
                return AttemptError(*verdict_on(error, retry))
        except BaseException as broken:
            # The user's `on` or `on_result` raised an error, so report this error instead.
            return AttemptError(broken, Verdict(retryable=False))

    def accept(call: Call, results: Any, began: float) -> Any:
        assert isinstance(call, GroupCall)
        positions = list(call.positions())
        if not isinstance(results, Sequence) or isinstance(results, (str, bytes)) or len(results) != len(positions):
            given = f"{len(results)} results" if isinstance(results, Sequence) else type(results).__name__
            raise TypeError(f"fn must return a list with one result for each of its {len(positions)} rows, not {given}")
        # Change the call only after all results are checked; otherwise a row could get both an answer and a failure.
        answers: list[tuple[RowBatch, int, Any]] = []
        left: list[tuple[RowBatch, int, RowFailure]] = []
        first: AttemptError | None = None
        is_partial = False
        elapsed = clock() - began
        for (batch, index), result in zip(positions, results, strict=True):
            wrong = judged(call, result, began)
            if not isinstance(wrong, AttemptError):
                is_partial = True
                answers.append((batch, index, wrong))
                continue
            is_partial |= wrong.verdict.answered and not wrong.verdict.throttled
            failure = failure_of(wrong, call.attempt, elapsed)
            if wrong.verdict.retryable:
                left.append((batch, index, failure))
                first = first or wrong
            else:
                answers.append((batch, index, failure))
        call.answers += answers
        call.narrow(left)
        call.is_served |= is_partial
        if first is not None:
            raise AttemptError(first.cause, first.verdict, is_partial=is_partial)
        return None

    return accept
