#!/usr/bin/env python3
"""Enrich a stream with a slow HTTP service that sometimes rejects a call.

Usage: python enrichment.py [--dir DIR]. The example starts the service on this machine. Requirements: spark-events,
pyspark and aiohttp.
"""

import argparse
import contextlib
import json
import logging
import os
import random
import tempfile
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import aiohttp
from pyspark.sql import DataFrame, Row, SparkSession

from spark_events import Cache, Context, Limits, Retry, enrich_batch

ORDERS = 200


class Countries(BaseHTTPRequestHandler):
    """Service that answers after 20 ms and rejects one call in ten."""

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
        """Suppress the access log."""


def client_of(url: str) -> Callable[[], AbstractAsyncContextManager[aiohttp.ClientSession]]:
    """Return a function that opens the client once per Python worker. All micro-batches share the client."""

    @contextlib.asynccontextmanager
    async def open_client() -> AsyncIterator[aiohttp.ClientSession]:
        # By default, aiohttp allows 100 connections. With 0, only enrich_batch limits the calls.
        async with aiohttp.ClientSession(url, connector=aiohttp.TCPConnector(limit=0)) as session:
            yield session

    return open_client


async def country_of(row: Row, ctx: Context) -> dict[str, str]:
    """Enrich one row. Each task makes up to 20 of these calls concurrently."""
    headers = {"Idempotency-Key": ctx.idempotency_key}
    async with ctx.resource.get(f"/users/{row.user_id}", headers=headers) as answer:
        answer.raise_for_status()
        found = await answer.json(content_type=None)
    return {"country": found["country"]}


def main() -> None:
    parser = argparse.ArgumentParser(description="Enrich a stream with a service on loopback.")
    parser.add_argument("--dir", type=Path, help="output folder (default: a new temporary directory)")
    base = parser.parse_args().dir or Path(tempfile.mkdtemp(prefix="spark-events-enrichment-"))
    (base / "orders").mkdir(parents=True)
    for batch in range(2):
        file = base / "orders" / f"{batch}.json"
        rows = range(batch * ORDERS, (batch + 1) * ORDERS)
        file.write_text("".join(f'{{"order_id": {n}, "user_id": {n % 50}}}\n' for n in rows), encoding="utf-8")
        os.utime(file, (1_700_000_000 + batch,) * 2)  # A file source reads the oldest file first.

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
            limits=Limits(max_in_flight=20),
            cache=Cache(by="user_id", ttl=0),  # 200 orders from 50 users need 50 calls.
            retry=Retry(attempts=6, initial=0.05),
        )
        enriched.write.mode("overwrite").json(str(base / "enriched" / str(batch_id)))
        # enrich_batch has stored the result, so counting its rows makes no further calls.
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
