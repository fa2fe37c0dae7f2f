"""Call an HTTP service whose token expires: log in once per worker process, and again after a 401."""

import asyncio
import contextlib

import aiohttp

from spark_events import Retry, enrich_batch


class TokenExpiredError(ConnectionError):
    """Answer 401 of the service, after which the next attempt logs in again."""


def enriched(df, url, user, password):
    @contextlib.asynccontextmanager
    async def open_client():
        async with aiohttp.ClientSession(url, connector=aiohttp.TCPConnector(limit=0)) as session:
            yield {"session": session, "token": "", "lock": asyncio.Lock()}

    async def lookup(row, ctx):
        client = ctx.resource
        async with client["lock"]:  # one login for all calls that wait
            if not client["token"]:
                async with client["session"].post("/login", json={"user": user, "password": password}) as answer:
                    client["token"] = (await answer.json())["token"]
        token = client["token"]
        async with client["session"].get(f"/scores/{row.id}", headers={"Authorization": f"Bearer {token}"}) as answer:
            if answer.status == 401:
                client["token"] = "" if client["token"] == token else client["token"]
                raise TokenExpiredError
            answer.raise_for_status()
            return {"score": (await answer.json())["score"]}

    return enrich_batch(df, lookup, output="score double", resource=open_client, retry=Retry(attempts=5, initial=0.05))
