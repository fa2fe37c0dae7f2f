"""Outages in foreachBatch, with the usual texts of their clients: a server closes the connection, or is full."""

from __future__ import annotations

import asyncio
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

import aiohttp
import httpx
from pyspark.sql import SparkSession

#: PostgreSQL's answer to the first packet: error 53300.
_BODY = b"SFATAL\0VFATAL\0C53300\0Msorry, too many clients already\0\0"
FULL = b"E" + (len(_BODY) + 4).to_bytes(4, "big") + _BODY


def server(reply: bytes) -> int:
    """Start a server that reads once, answers, and closes the connection; return its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(reply)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65_536):
                    pass

    threading.Thread(target=serve, daemon=True).start()
    return int(listener.getsockname()[1])


CLOSED = f"http://127.0.0.1:{server(b'')}/x"
POSTGRES = server(FULL)


def httpx_disconnected(df: Any, batch: int) -> None:
    httpx.get(CLOSED, trust_env=False)  # the line of httpx_disconnected


def aiohttp_disconnected(df: Any, batch: int) -> None:
    async def fetch() -> str:
        async with aiohttp.ClientSession() as client:
            answer = await client.get(CLOSED)  # the line of aiohttp_disconnected
            return await answer.text()

    asyncio.run(fetch())


def psycopg_full(df: Any, batch: int) -> None:
    import psycopg

    options = f"host=127.0.0.1 port={POSTGRES} user=u dbname=d sslmode=disable gssencmode=disable connect_timeout=5"
    psycopg.connect(options)  # the line of psycopg_full


def sqlalchemy_full(df: Any, batch: int) -> None:
    import sqlalchemy

    engine = sqlalchemy.create_engine(
        f"postgresql+psycopg://u@127.0.0.1:{POSTGRES}/d?sslmode=disable&gssencmode=disable"
    )
    engine.connect()  # the line of sqlalchemy_full


def name_unknown(df: Any, batch: int) -> None:
    socket.create_connection(("no-such-host.invalid", 80))  # the line of name_unknown


def requests_disconnected(df: Any, batch: int) -> None:
    import requests

    session = requests.Session()
    session.trust_env = False
    session.get(CLOSED)  # the line of requests_disconnected


def functions() -> Iterator[Any]:
    """Yield the functions, each of which meets one outage."""
    yield from (httpx_disconnected, aiohttp_disconnected, psycopg_full, sqlalchemy_full, name_unknown)
    yield requests_disconnected


if __name__ == "__main__":
    spark = SparkSession.builder.appName("outages").getOrCreate()
    for function in functions():
        source = spark.readStream.format("rate").option("rowsPerSecond", 5).load()
        writer = source.writeStream.foreachBatch(function).queryName(function.__name__)
        query = writer.option("checkpointLocation", tempfile.mkdtemp()).start()
        try:
            query.awaitTermination(120)
        except Exception as error:
            print(function.__name__, type(error).__name__, file=sys.stderr)
    spark.stop()
