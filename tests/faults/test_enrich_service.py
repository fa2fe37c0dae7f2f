"""Tests of the enrichment engine with a real HTTP service that injects faults and logs its calls."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import aiohttp
import httpx
import pytest
from enrich_engine import Run, chunks_of
from enrich_service import EnrichService, limit, rule
from fakes import eventually
from lateness import Witness

from spark_events.enrichment.engine.failure import RowFailure
from spark_events.enrichment.engine.ledger import JobLimits
from spark_events.enrichment.settings import CircuitBreaker, Retry

pytestmark = pytest.mark.faults

QUICK = Retry(initial=0.01, jitter=0.01)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnrichService]:
    with EnrichService(tmp_path_factory.mktemp("service") / "calls.jsonl") as running:
        yield running


class Client(Protocol):
    """HTTP client that looks up users."""

    @staticmethod
    def opened(url: str) -> AbstractAsyncContextManager[Any]: ...

    @staticmethod
    async def lookup(row: int, ctx: Any) -> str: ...


class Httpx:
    """User lookup with httpx."""

    @staticmethod
    @contextlib.asynccontextmanager
    async def opened(url: str) -> AsyncIterator[httpx.AsyncClient]:
        # Idle connections stay open: httpx closes them after 5 s, and a busy machine can pause for longer.
        limits = httpx.Limits(max_connections=None, keepalive_expiry=None)
        async with httpx.AsyncClient(base_url=url, limits=limits, timeout=None) as client:
            yield client

    @staticmethod
    async def lookup(row: int, ctx: Any) -> str:
        answer = await ctx.resource.get(f"/users/user-{row}", headers={"Idempotency-Key": ctx.idempotency_key})
        answer.raise_for_status()
        return str(answer.json()["key"])


class Aiohttp:
    """User lookup with aiohttp."""

    @staticmethod
    @contextlib.asynccontextmanager
    async def opened(url: str) -> AsyncIterator[aiohttp.ClientSession]:
        async with aiohttp.ClientSession(
            url, connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=3_600)
        ) as session:
            yield session

    @staticmethod
    async def lookup(row: int, ctx: Any) -> str:
        headers = {"Idempotency-Key": ctx.idempotency_key}
        async with ctx.resource.get(f"/users/user-{row}", headers=headers) as answer:
            answer.raise_for_status()
            return str((await answer.json())["key"])


@pytest.fixture(params=[Httpx, Aiohttp])
def client(request: pytest.FixtureRequest) -> type[Client]:
    asked: type[Client] = request.param
    return asked


def looked_up(client: type[Client], service: EnrichService, job: JobLimits | None = None, **plan: Any) -> Run:
    url = service.url

    def opened() -> AbstractAsyncContextManager[Any]:
        return client.opened(url)

    return Run(client.lookup, job=job, resource=opened, **{"retry": QUICK, **plan})


def users(rows: int) -> list[str]:
    return [f"user-{row}" for row in range(rows)]


def test_every_row_is_called_once_over_few_connections(client: type[Client], service: EnrichService) -> None:
    """The function is called once per row, within the limit of calls in flight, over reused connections."""
    service.script(delay=0.002)
    run = looked_up(client, service, max_in_flight=8)
    assert run.of(range(200)) == users(200)
    calls = service.calls()
    assert sorted(call.key for call in calls) == sorted(users(200))
    assert {call.key: call.idempotency_key for call in calls} == {f"user-{row}": repr(row) for row in range(200)}
    assert max(call.in_flight for call in calls) <= 8
    assert len({call.connection for call in calls}) <= 8
    assert run.numbers["attempts"] == 200


@pytest.mark.parametrize(
    "step",
    [
        {"status": 503},
        {"status": 500},
        {"close": True},
        {"reset": True},
        {"nonsense": True},
        {"cut": True},
        {"hang": True},
    ],
    ids=lambda step: next(iter(step)),
)
def test_transient_failures_are_retried_with_the_same_idempotency_key(
    client: type[Client], service: EnrichService, step: dict[str, Any]
) -> None:
    """Exceptions raised by real clients are classified as transient. Each failure causes one more call for its row."""
    service.script(rules=[rule("user-3", step, step)])
    # Use a short timeout only if a call hangs: on a busy machine, any call could exceed a short timeout.
    run = looked_up(client, service, max_in_flight=4, timeout=1 if "hang" in step else 30)
    assert run.of(range(6)) == users(6)
    calls = Counter(call.key for call in service.calls())
    assert calls == {**dict.fromkeys(users(6), 1), "user-3": 3}
    assert len({call.idempotency_key for call in service.calls() if call.key == "user-3"}) == 1
    # aiohttp retries once if a connection closes without an answer.
    by_itself = client is Aiohttp and bool({"close", "reset"} & set(step))
    assert run.numbers["retries"] == (1 if by_itself else 2)


@pytest.mark.parametrize(("step", "type_"), [({"status": 404}, "Error"), ({"garbage": True}, "Decode")])
def test_permanent_failures_are_not_retried(
    client: type[Client], service: EnrichService, step: dict[str, Any], type_: str
) -> None:
    """If a call is rejected (404) or the answer is not JSON, the call is not repeated."""
    service.script(rules=[rule("user-1", forever=step)])
    answers = looked_up(client, service).of(range(3))
    assert isinstance(answers[1], RowFailure)
    assert type_ in answers[1].type
    assert [answers[0], answers[2]] == ["user-0", "user-2"]
    assert Counter(call.key for call in service.calls())["user-1"] == 1


def test_every_row_is_answered_despite_the_service_s_rate_limit(service: EnrichService, witness: Witness) -> None:
    """After a 429 with Retry-After, calls pause and resume gradually, and every row is answered."""
    service.script(limit=limit(100, retry_after=1))
    run = looked_up(Aiohttp, service, max_in_flight=200, retry=Retry())
    began = time.monotonic()
    assert run.of(range(350)) == users(350)
    ended = time.monotonic()
    refused = [call for call in service.calls() if call.outcome == "429"]
    assert run.numbers["throttled"] == len(refused)
    assert ended - began > 3
    assert witness.took(began, ended) < 15
    # The first rejections are at most the calls in flight. After each pause, fewer calls are rejected.
    assert len(refused) < 350


def test_a_rate_limit_avoids_rejected_calls(service: EnrichService) -> None:
    """With a rate of 60 calls per second, a service that allows 90 calls in any second rejects no call."""
    # The service counts calls in every one-second window. Its limit of 90 allows for late calls on a busy machine.
    service.script(limit=limit(90))
    assert looked_up(Aiohttp, service, JobLimits(60), max_in_flight=50).of(range(150)) == users(150)
    calls = service.calls()
    assert len(calls) == 150
    assert {call.outcome for call in calls} == {"200"}


def test_calls_that_time_out_close_their_connection(client: type[Client], service: EnrichService) -> None:
    """A timeout closes the connection, so no call continues after its row has failed."""
    service.script(rules=[rule("user-.*", forever={"hang": True})])
    run = looked_up(client, service, timeout=0.3, retry=None, circuit_breaker=None)
    answers = run.of(range(5))
    assert {answer.kind for answer in answers} == {"timeout"}
    eventually(lambda: [call.outcome for call in service.calls()] == ["gone"] * 5)


def test_a_closed_run_leaves_no_call_in_flight(client: type[Client], service: EnrichService) -> None:
    """When a run is closed, its calls in flight are cancelled, and no call starts later."""
    service.script(rules=[rule("user-(?!0$).*", forever={"hang": True})])
    run = looked_up(client, service, max_in_flight=10)
    answers = run.begin(chunks_of(range(100), 1))
    assert next(answers)[1] == ["user-0"]
    eventually(lambda: len(service.calls()) == 11)
    answers.close()
    # The answered call is not necessarily the first call in the log.
    eventually(lambda: Counter(call.outcome for call in service.calls())["gone"] == 10)
    assert len(service.calls()) == 11


def test_a_restarted_service_fails_no_row(service: EnrichService) -> None:
    """While the service restarts, the circuit breaker holds the calls, and every row is answered."""
    service.script(delay=0.01)
    run = looked_up(
        Aiohttp, service, max_in_flight=10, circuit_breaker=CircuitBreaker(failures=10, give_up_after=60), timeout=5
    )
    answers: list[Any] = []
    reader = threading.Thread(target=lambda: answers.extend(run.of(range(400))))
    reader.start()
    eventually(lambda: len(service.calls()) > 50)
    service.kill()

    def is_open() -> bool:
        assert run.engine._life.pool is not None
        breaker = run.engine._life.pool._breaker
        assert breaker is not None
        return bool(breaker.opened)

    eventually(is_open)
    service.start()
    reader.join()
    assert answers == users(400)
    assert run.numbers["retries"] > 0


def test_an_unreachable_service_fails_the_batch_in_seconds(
    client: type[Client], service: EnrichService, witness: Witness
) -> None:
    """If no connection succeeds, the breaker fails the batch within seconds.

    Without the breaker, each of thousands of rows would need four attempts of 30 s.
    """
    service.script()
    service.kill()
    try:
        began = time.monotonic()
        breaker = CircuitBreaker(give_up_after=1)
        run = looked_up(client, service, max_in_flight=50, circuit_breaker=breaker)
        answers = run.of(range(5_000))
        assert witness.took(began) < 10
        assert all(isinstance(answer, RowFailure) for answer in answers)
        assert run.numbers["kinds"]["circuit-open"] > 4_000
        assert run.numbers["attempts"] < 400
    finally:
        service.start()


def test_a_frozen_service_fails_the_batch_soon_after_the_first_timeout(
    service: EnrichService, witness: Witness
) -> None:
    """If a service accepts connections but never answers, rows fail immediately after the breaker opens."""
    service.script()
    service.freeze()
    try:
        began = time.monotonic()
        breaker = CircuitBreaker(failures=5, give_up_after=0.5)
        run = looked_up(Aiohttp, service, max_in_flight=20, timeout=1, circuit_breaker=breaker)
        answers = run.of(range(2_000))
        assert witness.took(began) < 6
        assert all(isinstance(answer, RowFailure) for answer in answers)
    finally:
        service.thaw()


def test_calls_of_a_key_are_in_order(service: EnrichService) -> None:
    """Despite failures and slow calls, each key has one call at a time, in row order."""
    service.script(
        delay=0.001, tail=[0.05, 0.03], rules=[rule("user-.*7", {"status": 503}), rule("user-.*5", {"close": True})]
    )
    run = looked_up(Aiohttp, service, key="k", max_in_flight=20)
    assert run.of(chunks_of(range(300), 40, key=lambda row: row % 11)) == users(300)
    by_key: dict[int, list[Any]] = {}
    for call in service.calls():
        by_key.setdefault(int(call.key.removeprefix("user-")) % 11, []).append(call)
    for calls in by_key.values():
        rows = [int(call.key.removeprefix("user-")) for call in calls]
        assert rows == sorted(rows)
        for before, after in itertools.pairwise(calls):
            assert before.over_at <= after.began


def test_runs_share_the_resource(service: EnrichService) -> None:
    """Later runs in a process reuse the resource of the first run, and therefore its connections."""
    from enrich_engine import definition

    service.script()
    made = definition()
    url = service.url
    plan: dict[str, Any] = {"resource": lambda: Aiohttp.opened(url), "max_in_flight": 5}
    for _ in range(3):
        assert Run(Aiohttp.lookup, made=made, **plan).of(range(20)) == users(20)
    assert len({call.connection for call in service.calls()}) <= 5


def test_a_moved_service_ignores_earlier_clients(service: EnrichService) -> None:
    """After the service has moved, calls over connections to its former port are not in its log."""
    before = service.port
    service.script(rules=[rule("late", forever={"status": 500})])
    with httpx.Client() as client:
        client.get(f"http://127.0.0.1:{before}/users/early")
        assert [call.key for call in service.calls()] == ["early"]
        service.move()
        for _ in range(2):
            with pytest.raises(httpx.TransportError):
                client.get(f"http://127.0.0.1:{before}/users/late")
        assert client.get(f"{service.url}/users/late").status_code == 200
    assert service.port != before
    assert [call.key for call in service.calls()] == ["late"]
