"""Sharing of calls between equal requests: calls in flight, answers of the batch, and cached answers."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from spark_events.enrichment.engine.buffer import size_of
from spark_events.enrichment.engine.calls import RowBatch
from spark_events.enrichment.engine.failure import RowFailure
from spark_events.enrichment.engine.statistics import EngineCounts

__all__ = ["AnswerCache", "Sharing"]

_MISSING = object()
#: Kinds of failure that do not depend on the request, whatever the number of attempts.
_NOT_ITS_OWN = {"circuit-open", "resource"}


class AnswerCache:
    """Answers by request; evicts the least recently used answer, and expires answers.

    Args:
        most: maximum number of answers.
        ttl: seconds until an answer expires; None: never.
        most_bytes: maximum total estimated size of the answers; None: no limit. One answer is always kept.
        clock: monotonic time in seconds.
    """

    def __init__(
        self,
        most: int,
        ttl: float | None,
        most_bytes: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._bytes = 0.0
        self._ttl = ttl
        self._clock = clock
        self._answers: OrderedDict[Hashable, tuple[float, Any, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, request: Hashable, default: Any) -> Any:
        """Return the answer to a request, or the default."""
        found = self._answers.get(request)
        if found is None:
            return default
        if self._ttl is not None and self._clock() - found[0] >= self._ttl:
            self._forget(request)
            return default
        self._answers.move_to_end(request)
        return found[1]

    def put(self, request: Hashable, answer: Any) -> None:
        """Store an answer; its lifetime starts now."""
        self._forget(request)
        weight = 0.0 if self._most_bytes is None else size_of(answer)
        self._answers[request] = (self._clock() if self._ttl is not None else 0.0, answer, weight)
        self._bytes += weight
        while len(self._answers) > self._most or self._is_too_heavy():
            self._forget(next(iter(self._answers)))

    def _is_too_heavy(self) -> bool:
        return self._most_bytes is not None and self._bytes > self._most_bytes and len(self._answers) > 1

    def _forget(self, request: Hashable) -> None:
        found = self._answers.pop(request, None)
        if found is not None:
            self._bytes -= found[2]


class Sharing:
    """Selection of the rows that need a call; copies answers to rows with equal requests.

    Args:
        batch: answers and failures of this batch; None: equal requests share only calls in flight.
        cache: answers of this process; None: there is no cache.
        counts: the counters of the run.
    """

    def __init__(
        self,
        batch: AnswerCache | None,
        cache: AnswerCache | None,
        counts: EngineCounts,
    ) -> None:
        self._batch = batch
        self._cache = cache
        self._counts = counts
        self._followers: dict[Hashable, list[tuple[RowBatch, int]]] = {}

    def admit(self, batch: RowBatch, indices: Sequence[int]) -> list[int]:
        """Return the rows that need a call.

        The other rows already have an answer, or wait for the answer of another row.
        """
        requests = batch.chunk.requests
        assert requests is not None
        needed = []
        for index in indices:
            request = requests[index]
            followers = self._followers.get(request)
            if followers is not None:
                followers.append((batch, index))
                self._counts.coalesced += 1
            elif self._batch is not None and (answer := self._batch.get(request, _MISSING)) is not _MISSING:
                self._counts.coalesced += 1
                self._answer(batch, index, answer)
            elif self._cache is not None and (answer := self._cache.get(request, _MISSING)) is not _MISSING:
                self._counts.cached += 1
                self._answer(batch, index, answer)
            else:
                self._followers[request] = []
                needed.append(index)
        return needed

    def settle(self, batch: RowBatch, index: int, answer: Any) -> None:
        """Store the answer of a call for its row and for all rows that wait for the same request."""
        requests = batch.chunk.requests
        assert requests is not None
        request = requests[index]
        failed = isinstance(answer, RowFailure)
        if self._batch is not None and not (failed and (not answer.attempts or answer.kind in _NOT_ITS_OWN)):
            self._batch.put(request, answer)
        if self._cache is not None and not failed:
            self._cache.put(request, answer)
        batch.settle(index, answer)
        for other, follower in self._followers.pop(request, ()):
            self._answer(other, follower, answer)

    def _answer(self, batch: RowBatch, index: int, answer: Any) -> None:
        if isinstance(answer, RowFailure):
            self._counts.failed(answer)
        batch.settle(index, answer)
