"""Call sites and descriptions of jobs, stages and SQL executions, as a user knows them."""

from __future__ import annotations

import functools
import re

__all__ = ["described", "user_call_site"]

_LIMIT = 120
#: Description and call site that Spark Connect sets on the work of a client: the beginning of the client's request.
_OF_CLIENT = re.compile(
    r'^Spark Connect - session_id: "([0-9a-f]{8})[0-9a-f-]*"\s+(?:user_context \{\s+user_id: "(.*?)")?', re.DOTALL
)
#: Call site that Spark records for DataFrame calls from Python. Py4J calls Spark through the JDK's reflection, so the
#: call site names no user code.
_REFLECTION = re.compile(
    r" at (?:(?:Native|Delegating)(?:Method|Constructor)AccessorImpl|Direct(?:Method|Constructor)HandleAccessor"
    r"|GeneratedMethodAccessor\d*)(?:\.java:-?\d+|\.<unknown>)?(?!\w)"
)
#: Call site of the stages that adaptive execution submits in a thread of Spark.
_SPARKS_THREAD = re.compile(r"^\$anonfun\$withThreadLocalCaptured\$\d+ at (?:CompletableFuture|FutureTask)\.java:\d+$")
#: Line break in the descriptions that Spark writes for its web UI.
_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
#: Description that Spark sets on the work of a streaming query; a continuous query has the batch ``init``.
_OF_QUERY = re.compile(r"(.*?) ?\bid = ([0-9a-f-]+) runId = [0-9a-f-]+ batch = (\w+)", re.DOTALL)


@functools.lru_cache(maxsize=256)
def user_call_site(call_site: str) -> str:
    """Return the part of a call site that a user knows.

    The call site of a thread of Spark becomes an empty string.

    >>> user_call_site("csv at NativeMethodAccessorImpl.java:0"), user_call_site("csv at Job.scala:7")
    ('csv', 'csv at Job.scala:7')
    """
    client = _OF_CLIENT.match(call_site)
    if client is not None:
        return f"user '{client[2] or ''}', session {client[1]}"
    return _SPARKS_THREAD.sub("", _REFLECTION.sub("", call_site))


@functools.lru_cache(maxsize=256)
def described(description: str) -> str:
    """Return a description on one line, for the body of an event: without HTML and without ids of queries.

    The result is cached, because an application has few different descriptions.

    >>> described("clicks<br/>id = 3f0a21bc-9<br/>runId = 6f59<br/>batch = 4")
    "query 'clicks', batch 4"
    """
    line = " ".join(_BREAK.sub(" ", user_call_site(description)).split())
    query = _OF_QUERY.fullmatch(line)
    if query is not None:
        name, query_id, batch = query.groups()
        line = f"query '{name or query_id[:8]}'{f', batch {batch}' if batch.isdecimal() else ''}"
    return line[:_LIMIT]
