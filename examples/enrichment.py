#!/usr/bin/env python3
"""A stream whose rows are enriched by a service that is slow, and now and then refuses.

Usage: python enrichment.py [--dir DIR]. Starts the service itself, on loopback; needs spark-events and pyspark.
"""

import argparse
import asyncio
import contextlib
import json
import logging
import os
import random
import tempfile
import threading
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession

from spark_events import Context, Retry, enrich_batch

ORDERS = 200


class Countries(BaseHTTPRequestHandler):
    """Answers after 20 ms; one call in ten is refused."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        threading.Event().wait(0.02)
        refused = random.random() < 0.1
        body = json.dumps({"country": ("DE", "FR", "IT")[int(self.path.rpartition("/")[2]) % 3]}).encode()
        self.send_response(503 if refused else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


class Client:
    """A client that every Python has. In earnest it would be httpx.AsyncClient, or aiohttp.ClientSession."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def get(self, path: str, idempotency_key: str) -> dict[str, str]:
        request = urllib.request.Request(self.url + path, headers={"Idempotency-Key": idempotency_key})

        def call() -> dict[str, str]:
            with urllib.request.urlopen(request, timeout=5) as answer:
                found: dict[str, str] = json.load(answer)
                return found

        return await asyncio.to_thread(call)


def client_of(url: str) -> Callable[[], AbstractAsyncContextManager[Client]]:
    """What opens the client: once in each Python worker, kept from one micro-batch to the next."""

    @contextlib.asynccontextmanager
    async def open_client() -> AsyncIterator[Client]:
        yield Client(url)

    return open_client


async def country_of(row: Row, ctx: Context) -> dict[str, str]:
    """Called for every row, up to 20 at the same time in each task."""
    found = await ctx.resource.get(f"/users/{row.user_id}", ctx.idempotency_key)
    return {"country": found["country"]}


def main() -> None:
    parser = argparse.ArgumentParser(description="Enriches a stream by a service on loopback.")
    parser.add_argument("--dir", type=Path, help="where to put everything (default: a new temporary directory)")
    base = parser.parse_args().dir or Path(tempfile.mkdtemp(prefix="spark-events-enrichment-"))
    (base / "orders").mkdir(parents=True)
    for batch in range(2):
        file = base / "orders" / f"{batch}.json"
        rows = range(batch * ORDERS, (batch + 1) * ORDERS)
        file.write_text("".join(f'{{"order_id": {n}, "user_id": {n % 50}}}\n' for n in rows), encoding="utf-8")
        os.utime(file, (1_700_000_000 + batch,) * 2)  # a file source takes the oldest first

    service = ThreadingHTTPServer(("127.0.0.1", 0), Countries)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    open_client = client_of(f"http://127.0.0.1:{service.server_port}")
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("py4j").setLevel(logging.ERROR)
    spark = SparkSession.builder.appName("enrichment").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")

    def process(orders: DataFrame, batch_id: int) -> None:
        enriched = enrich_batch(
            orders,
            country_of,
            output="country string not null",
            resource=open_client,
            max_in_flight=20,
            coalesce_by="user_id",  # 200 orders are of 50 users: 50 calls
            retry=Retry(attempts=6, initial=0.05),
        )
        enriched.write.mode("overwrite").json(str(base / "enriched" / str(batch_id)))
        # The result is settled: to count it calls nobody again.
        print(
            f"batch {batch_id}:", {row.country: row["count"] for row in enriched.groupBy("country").count().collect()}
        )

    query = (
        spark.readStream.schema("order_id long, user_id long")
        .option("maxFilesPerTrigger", 1)
        .json(str(base / "orders"))
        .writeStream.queryName("enrich-orders")
        .foreachBatch(process)
        .option("checkpointLocation", str(base / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()
    service.shutdown()
    print(f"the enriched orders are in {base / 'enriched'}")


if __name__ == "__main__":
    main()
