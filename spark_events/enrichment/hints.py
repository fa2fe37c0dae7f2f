"""Hints about likely causes of failures, for messages on the driver and in the workers."""

from __future__ import annotations

import re
from collections.abc import Iterable

from spark_events.enrichment.engine.failure import RowFailure
from spark_events.enrichment.plan import Plan
from spark_events.enrichment.signature import names_in

__all__ = ["different", "hint", "hints"]

#: Errors raised by a function that parses an error page as if it were an answer.
_MISREAD = ("KeyError", "JSONDecodeError", "ContentTypeError")
#: Results of a function that has not awaited a call.
_NOT_AWAITED = tuple(f"the function returned {kind}," for kind in ("coroutine", "Task", "Future"))
#: Beginning of the message of Python when code uses the result of a call that it has not awaited.
_NOT_AWAITED_YET = ("'coroutine' object", "argument of type 'coroutine'", "cannot unpack non-iterable coroutine")
#: Parts of the messages of asyncio when code starts an event loop inside a running one.
_NESTED_LOOP = ("event loop is already running", "from a running event loop", "while another loop is running")


#: Parts of the messages of Python when code uses a row as a number or a text.
_AS_A_TUPLE = re.compile(r"""to tuple$|(?::|and|not) 'Row'|"Row"|Row found|'Row' object is not a mapping""")


def hints(plan: Plan, failures: Iterable[RowFailure]) -> str:
    """Return the distinct hints about some failures, as sentences to append to a message; "" if there are none."""
    return "".join(f". Hint: {text}" for text in different(plan, failures))


def different(plan: Plan, failures: Iterable[RowFailure]) -> list[str]:
    """Return the distinct hints about some failures."""
    return list(dict.fromkeys(text for failure in failures if (text := hint(plan, failure))))


def hint(plan: Plan, failure: RowFailure) -> str:
    """Return the likely cause of a failure and its remedy, or ""."""
    of_none = failure.type in ("AttributeError", "TypeError") and "'NoneType' object" in failure.message
    if of_none and plan.resource is None and "resource" in names_in(plan.fn):
        return "ctx.resource is None without the argument resource: give resource=…"
    if failure.type == "RuntimeError" and any(text in failure.message for text in _NESTED_LOOP):
        return "fn already runs in an event loop: await the coroutine, without run_until_complete or asyncio.run"
    is_misfit = failure.type == "OutputError"
    if is_misfit and failure.message.startswith(_NOT_AWAITED):
        return "the function returned a call that it has not awaited: write return await …"
    if is_misfit and failure.message.startswith("the function returned NoneType,"):
        return "the function returned None: on one of its paths, a return is missing"
    is_misuse = failure.type in ("AttributeError", "TypeError")
    if is_misuse and failure.message.startswith(_NOT_AWAITED_YET):
        return "the function uses the result of a call that it has not awaited: write await before the call"
    if is_misuse and "used in 'await' expression" in failure.message:
        return (
            "the function awaits a result that is there already, as from a blocking client: leave out await, and call "
            "blocking code with await asyncio.to_thread(…)"
        )
    if is_misuse and plan.batch_size is None and _AS_A_TUPLE.search(failure.message):
        return "fn receives the whole row as its first argument: read the columns as row.name, or use row.asDict()"
    if is_misuse and plan.batch_size is not None and failure.message.startswith("'list' object has no attribute"):
        return "with batch_size, fn receives a list of rows; leave out batch_size to receive one row"
    if failure.type.endswith("JSONDecodeError"):
        if plan.retry is not None and plan.retry.on_invalid:
            # The user expects answers that are not valid JSON.
            return ""
        if "loads" in names_in(plan.fn):
            # The function decodes a text within the answer, such as that of a language model.
            return "the text in the answer is not valid JSON: give Retry(on_invalid=True) to ask again"
    if failure.type.rpartition(".")[2] in _MISREAD or (is_misfit and "a mapping without" in failure.message):
        called = names_in(plan.fn) | names_in(plan.resource)
        if "json" in called and "raise_for_status" not in called:
            return "the service may have answered with an error status: call raise_for_status() before json()"
    if is_misfit and plan.batch_size is None and failure.message.startswith("the function returned list,"):
        return "a function of several rows needs batch_size=…"
    if plan.batch_size is not None and re.match(r"fn must return a list.* not [A-Za-z]", failure.message):
        return "with batch_size, fn receives a list of rows; leave out batch_size to receive one row"
    return ""
