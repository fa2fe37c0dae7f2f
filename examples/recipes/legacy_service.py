"""Call a slow service through a blocking client: a few threads, a long timeout, one call for equal rows."""

import asyncio
import json
import urllib.request

from spark_events import Cache, Limits, OnFailure, Retry, enrich_batch

THREADS = 4  # per task; asyncio's own pool has min(32, processors + 4) threads


def enriched(df, url):
    def fetch(customer):
        with urllib.request.urlopen(f"{url}/legacy/{customer}", timeout=30) as answer:
            return json.load(answer)

    async def lookup(row):
        return {"segment": (await asyncio.to_thread(fetch, row.customer))["segment"]}

    return enrich_batch(
        df,
        lookup,
        output="segment string",
        limits=Limits(max_in_flight=THREADS, timeout=35, total_timeout=300),
        retry=Retry(attempts=3, initial=1),
        cache=Cache(by="customer", ttl=3600),
        on_failure=OnFailure("column"),  # a row without an answer does not stop the stream
    )
