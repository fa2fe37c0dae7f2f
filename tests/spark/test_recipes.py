"""Tests of the recipes in examples/recipes against real servers."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from types import ModuleType
from urllib.parse import quote

import pytest
from aiohttp import web
from fakes import ROOT, eventually
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from reporters.peers.postgresql import PASSWORD, PostgreSQL

from spark_events import EnrichmentError

pytestmark = [pytest.mark.spark, pytest.mark.any_spark, pytest.mark.timeout(1800)]

RECIPES = ROOT / "examples" / "recipes"


def recipe(name: str) -> ModuleType:
    """Import a recipe, whose classes are pickled by value because workers cannot import the recipe."""
    spec = importlib.util.spec_from_file_location(f"recipe_{name}", RECIPES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return module


#: Tokens per answer, and the service's quota of tokens in 5 s. The recipe's budget is 250 tokens in 5 s; the quota is
#: higher, because a busy machine delays calls.
TOKENS, QUOTA, QUOTA_SECONDS = 25, 400, 5


class Service:
    """Services that the recipes call, which count the requests."""

    def __init__(self) -> None:
        self.logins = 0
        self.expired = 0
        self.uses: dict[str, int] = {}
        self.asked = 0
        self.over_quota = 0
        self.spent: list[float] = []
        self.legacy: list[str] = []
        self.bulk: list[int] = []
        self.url = ""

    async def login(self, request: web.Request) -> web.Response:
        if (await request.json())["password"] == "wrong":
            return web.json_response({"token": "wrong"})
        self.logins += 1
        return web.json_response({"token": f"t{self.logins}"})

    async def score(self, request: web.Request) -> web.Response:
        """Accept ten requests per token, and reject further requests with 401."""
        token = request.headers["Authorization"]
        if token == "Bearer wrong":
            raise web.HTTPUnauthorized
        self.uses[token] = self.uses.get(token, 0) + 1
        if self.uses[token] > 10:
            self.expired += 1
            raise web.HTTPUnauthorized
        return web.json_response({"score": int(request.match_info["id"]) / 2})

    async def completions(self, request: web.Request) -> web.Response:
        """Answer like an OpenAI-compatible server with a token quota, but always reject the fifth request."""
        body = await request.json()
        schema = body["response_format"]["json_schema"]["schema"]
        assert set(schema["required"]) == {"topic", "urgent"}
        self.asked += 1
        now = time.monotonic()
        is_over = TOKENS * sum(now - QUOTA_SECONDS < spent for spent in self.spent) > QUOTA - TOKENS
        self.over_quota += is_over
        if is_over or self.asked == 5:
            raise web.HTTPTooManyRequests(headers={"Retry-After": "0", "x-ratelimit-remaining-tokens": "0"})
        self.spent.append(now)
        text = body["messages"][0]["content"]
        content = json.dumps({"topic": "outage" if "down" in text else "billing", "urgent": "down" in text})
        if self.asked % 10 == 7:
            content = "Sure! Here is the JSON: {"
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}
        usage = {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": TOKENS}
        answer = {"id": "c1", "object": "chat.completion", "created": int(time.time()), "model": body["model"]}
        return web.json_response({**answer, "choices": [choice], "usage": usage})

    async def batch_get(self, request: web.Request) -> web.Response:
        """Return at most 40 items, and the remaining keys as unprocessed."""
        keys = (await request.json())["keys"]
        self.bulk.append(len(keys))
        items = [{"id": key, "price": key * 1.5} for key in keys[:40] if key != 7]
        return web.json_response({"items": items, "unprocessed": keys[40:]})

    async def slow(self, request: web.Request) -> web.Response:
        customer = request.match_info["customer"]
        self.legacy.append(customer)
        await asyncio.sleep(0.05)
        if customer == "c3":
            raise web.HTTPNotFound
        return web.json_response({"segment": f"segment of {customer}"})

    def serve(self, ready: Future[asyncio.AbstractEventLoop]) -> None:
        async def run() -> None:
            app = web.Application()
            app.router.add_post("/login", self.login)
            app.router.add_get("/scores/{id}", self.score)
            app.router.add_post("/v1/chat/completions", self.completions)
            app.router.add_post("/batch-get", self.batch_get)
            app.router.add_get("/legacy/{customer}", self.slow)
            runner = web.AppRunner(app)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            self.over = asyncio.Event()
            ready.set_result(asyncio.get_running_loop())
            await self.over.wait()
            await runner.cleanup()

        asyncio.run(run())


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """Yield the running services of the recipes."""
    made, ready = Service(), Future[asyncio.AbstractEventLoop]()
    thread = threading.Thread(target=made.serve, args=(ready,))
    thread.start()
    loop = ready.result(60)
    yield made
    loop.call_soon_threadsafe(made.over.set)
    thread.join()


def test_recipes_are_short() -> None:
    """A recipe has at most 30 lines."""
    recipes = sorted(RECIPES.glob("*.py"))
    assert len(recipes) == 5
    for path in recipes:
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 30, path


def test_an_expired_token_is_renewed(spark: SparkSession, service: Service) -> None:
    """Every row receives its answer, although each token is valid for only ten requests."""
    out = recipe("expiring_token").enriched(spark.range(0, 40, 1, 1), service.url, "ada", "secret")
    assert [row.score for row in out.orderBy("id").collect()] == [number / 2 for number in range(40)]
    assert service.logins >= 4
    assert service.expired > 0


def test_expired_tokens_do_not_count_as_an_outage(spark: SparkSession, service: Service) -> None:
    """With a wrong password, rows fail with the status 401; the circuit breaker does not open."""
    with pytest.raises(EnrichmentError, match="401") as raised:
        recipe("expiring_token").enriched(spark.range(0, 40, 1, 1), service.url, "ada", "wrong").collect()
    assert {sample.failure.kind for sample in raised.value.samples} == {"error"}


def test_rows_are_looked_up_in_postgresql(spark: SparkSession) -> None:
    """A lookup reads a hundred rows with one query. The answer for a missing row contains nulls."""
    server = PostgreSQL()
    try:
        server.start()
        server.psql(
            "create table accounts (id bigint primary key, name text, balance numeric)",
            "insert into accounts select n, 'n' || n, n * 10 from generate_series(0, 498) n",
        )
        dsn = f"postgresql://ada:{quote(PASSWORD, safe='')}@127.0.0.1:{server.port}/events"
        rows = recipe("postgresql").enriched(spark.range(0, 500, 1, 2), dsn).orderBy("id").collect()
    finally:
        server.remove()
    assert [(row.name, row.balance) for row in rows[:499]] == [(f"n{n}", n * 10.0) for n in range(499)]
    assert (rows[499].name, rows[499].balance) == (None, None)


def test_a_failover_of_postgresql_does_not_fail_the_batch(spark: SparkSession) -> None:
    """If the server is down for longer than the default ``give_up_after``, every row still receives its answer."""
    server = PostgreSQL()
    outages: list[float] = []

    def restart() -> None:
        calls = "select 1 from pg_stat_activity where query like 'select id, name%' and state = 'active'"
        eventually(lambda: server.psql(calls), what="a query of the batch")
        server.stop()
        began = time.monotonic()
        time.sleep(12)  # the failover
        server.start()
        outages.append(time.monotonic() - began)

    try:
        server.start()
        server.psql(
            "create table held (id bigint primary key, name text, balance numeric)",
            "insert into held select n, 'n' || n, n * 10 from generate_series(0, 3999) n",
            # A query of a hundred rows takes two seconds.
            "create view accounts as select id, name || pg_sleep(0.02)::text as name, balance from held",
        )
        restarting = threading.Thread(target=restart)
        restarting.start()
        dsn = f"postgresql://ada:{quote(PASSWORD, safe='')}@127.0.0.1:{server.port}/events"
        rows = recipe("postgresql").enriched(spark.range(0, 4000, 1, 2), dsn).orderBy("id").collect()
        restarting.join()
    finally:
        server.remove()
    assert outages
    assert outages[0] > 10
    assert [(row.name, row.balance) for row in rows] == [(f"n{n}", n * 10.0) for n in range(4000)]


def test_texts_are_classified_by_a_model(spark: SparkSession, service: Service) -> None:
    """Each row has its structured answer, although the model sometimes answers with a sentence, and its tokens.

    The budget keeps the calls below the quota.
    """
    texts = spark.createDataFrame(
        [(n, "db is down" if n % 2 else "an invoice") for n in range(20)], "id int, text string"
    )
    good, dead = recipe("llm").enriched(texts, f"{service.url}/v1", "key", "small", 3_000)
    rows = good.orderBy("id").collect()
    assert [(row.topic, row.urgent, row.tokens) for row in rows] == [("billing", False, 25), ("outage", True, 25)] * 10
    assert dead.count() == 0
    assert (service.asked, service.over_quota) == (23, 0)
    assert service.spent[-1] - service.spent[0] >= 0.8 * (20 * TOKENS - 100) / 50


def test_unprocessed_keys_are_read_again(spark: SparkSession, service: Service) -> None:
    """A request contains at most 100 keys. Keys that the service returns as unprocessed are requested again."""
    rows = recipe("bulk_reads").enriched(spark.range(0, 250, 1, 1), service.url).orderBy("id").collect()
    assert [row.price for row in rows] == [None if n == 7 else n * 1.5 for n in range(250)]
    assert max(service.bulk) == 100
    assert len(service.bulk) >= 7


def test_a_blocking_client_runs_in_threads(spark: SparkSession, service: Service) -> None:
    """Rows with equal customers cause one call, and a failed call is reported in its row."""
    rows = [(n, f"c{n % 5}") for n in range(50)]
    customers = spark.createDataFrame(rows, "id int, customer string").coalesce(1)
    found = recipe("legacy_service").enriched(customers, service.url).collect()
    for row in found:
        assert row.segment == (None if row.customer == "c3" else f"segment of {row.customer}")
        assert (row.failure is None) is (row.customer != "c3")
    assert sorted(service.legacy) == ["c0", "c1", "c2", "c3", "c4"]
