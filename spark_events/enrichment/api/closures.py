"""Pickling of the user's functions for the executors, checked on the driver before any task runs."""

from __future__ import annotations

import hashlib
import inspect
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from spark_events.enrichment.api.schema import Output, typed
from spark_events.enrichment.engine.engine import Definition
from spark_events.enrichment.plan import Plan
from spark_events.enrichment.signature import name_of
from spark_events.enrichment.worker.map_in_arrow import ACCUMULATOR
from spark_events.errors import InvalidPlanError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["definition_of", "pickled"]

#: Bytes that occur in the pickle of every object that references a Connect session, which only the driver can unpickle.
_CONNECT_SESSION = b"_getActiveSessionIfMatches"


def pickled(plan: Plan) -> bytes:
    """Return the pickled plan; functions that executors cannot import are pickled by value.

    Raises:
        InvalidPlanError: when a function, or an object that it references, cannot be pickled, or when the resource uses
            an accumulator.
    """
    for name, part in _parts(plan).items():
        if ACCUMULATOR in _dumped(name, part) and name == "resource":
            raise InvalidPlanError(
                f"resource {name_of(part)} uses an accumulator: Spark reads accumulators when a task ends, and a "
                "resource outlives its task, so its counts would be lost; use the accumulator in fn"
            )
    return _dumped("the plan", plan)


def definition_of(plan: Plan, output: Output, schema: StructType, input_cols: Sequence[str]) -> Definition:
    """Return digests that identify the cached answers and resources that a worker process may reuse.

    Args:
        plan: the plan with the user's functions.
        output: the columns of the answers.
        schema: the schema of the DataFrame.
        input_cols: the columns that the function receives.
    """
    parts = _parts(plan)
    resource = "" if plan.resource is None else hashlib.sha256(_dumped("resource", parts["resource"])).hexdigest()
    # One function may call several services; only the resource distinguishes their calls.
    calls = hashlib.sha256(_dumped("fn", plan.fn) + output.serialised() + resource.encode()).hexdigest()
    # The checks of answers are part of the digest: an earlier version of the program may have cached an answer that a
    # changed check rejects.
    again = [_dumped(name, parts[name]).hex() for name in ("Retry.on_result", "output") if name in parts]
    # The function's columns are part of the digest, even with coalesce_by: with other columns, the function may answer
    # the same request differently.
    asked = [typed(schema, input_cols), typed(schema, plan.coalesce_by or ())]
    answers = hashlib.sha256(repr([calls, again, *asked]).encode()).hexdigest()
    return Definition(calls, answers, resource, uuid.uuid4().hex)


def _parts(plan: Plan) -> dict[str, Any]:
    parts: dict[str, Any] = {"fn": plan.fn}
    if plan.resource is not None:
        parts["resource"] = plan.resource
    if plan.retry is not None and callable(plan.retry.on):
        parts["Retry.on"] = plan.retry.on
    if plan.retry is not None and plan.retry.on_result is not None:
        parts["Retry.on_result"] = plan.retry.on_result
    if plan.model is not None:
        parts["output"] = plan.model
    if plan.budget is not None:
        parts["Budget"] = plan.budget
    return parts


def _dumped(name: str, part: Any) -> bytes:
    try:
        return _bytes_of(part)
    except Exception as refusal:
        which = f" {name_of(part)}" if callable(part) else ""
        raise InvalidPlanError(
            f"{name}{which} cannot be pickled for the executors: {_held_by(part)}{refusal}. Open clients and "
            "connections in the function that you pass as resource=, which runs on the executors"
        ) from None


def _bytes_of(part: Any) -> bytes:
    from pyspark import cloudpickle

    made = bytes(cloudpickle.dumps(part))  # type: ignore[no-untyped-call]
    if _CONNECT_SESSION in made:
        raise TypeError("a Spark session works on the driver only")
    return made


def _held_by(part: Any) -> str:
    """Return a message clause that names the variable that cannot be pickled, or ""."""
    try:
        variables = inspect.getclosurevars(part)
    except (TypeError, ValueError):  # not a function, or a variable that is not assigned yet
        return ""
    for name, value in {**variables.nonlocals, **variables.globals}.items():
        try:
            _bytes_of(value)
        except Exception:
            return f"it uses {name!r}, of type {type(value).__name__}: "
    return ""
