"""Look up rows in PostgreSQL through an asyncpg pool, with a hundred rows in one query."""

import asyncpg

from spark_events import CircuitBreaker, Limits, Retry, enrich_batch

CONNECTIONS = 8  # per worker process; PostgreSQL's max_connections limits the sum over all workers


def enriched(df, dsn):
    def open_pool():
        return asyncpg.create_pool(dsn, min_size=1, max_size=CONNECTIONS)

    async def lookup(rows, ctx):
        ids = [row.id for row in rows]
        found = await ctx.resource.fetch("select id, name, balance from accounts where id = any($1::bigint[])", ids)
        by_id = {one["id"]: {"name": one["name"], "balance": float(one["balance"])} for one in found}
        return [by_id.get(row.id, {"name": None, "balance": None}) for row in rows]

    # Calls are retried during a failover of up to 90 s. An error in the SQL statement fails the batch immediately.
    return enrich_batch(
        df,
        lookup,
        output="name string, balance double",
        resource=open_pool,
        batch_size=100,
        limits=Limits(max_in_flight=CONNECTIONS, circuit_breaker=CircuitBreaker(give_up_after=90)),
        retry=Retry(attempts=100, max=2),
    )
