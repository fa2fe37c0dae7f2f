"""The user's functions as bytes for the executors, and whether they can be made so: found out before any task runs."""

from __future__ import annotations

import hashlib
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


def pickled(plan: Plan) -> bytes:
    """The plan, with its functions by value where executors cannot import them.

    Raises:
        InvalidPlanError: a function, or something it holds, cannot be pickled; the resource uses an accumulator.
    """
    for name, part in _parts(plan).items():
        if ACCUMULATOR in _dumped(name, part) and name == "resource":
            raise InvalidPlanError(
                f"resource {name_of(part)} uses an accumulator: Spark reads accumulators when a task ends, and a "
                "resource outlives its task, so counts would be lost; use the accumulator in fn"
            )
    return _dumped("the plan", plan)


def definition_of(plan: Plan, output: Output, schema: StructType, input_cols: Sequence[str]) -> Definition:
    """What a worker process may use again, by what it is made of.

    Args:
        plan: with the functions.
        output: what they answer.
        schema: of the DataFrame.
        input_cols: what the function gets of it.
    """
    parts = _parts(plan)
    resource = "" if plan.resource is None else hashlib.sha256(_dumped("resource", parts["resource"])).hexdigest()
    # One function may call several services; the resource tells them apart.
    calls = hashlib.sha256(_dumped("fn", plan.fn) + output.serialised() + resource.encode()).hexdigest()
    # What an earlier version of the program took for an answer, this one may not.
    again = _dumped("Retry.on_result", parts["Retry.on_result"]).hex() if "Retry.on_result" in parts else ""
    # The function's columns even with coalesce_by: with others, it gives other answers to the same request.
    asked = [calls, again, typed(schema, input_cols), typed(schema, plan.coalesce_by or ())]
    answers = hashlib.sha256(repr(asked).encode()).hexdigest()
    return Definition(calls, answers, resource, uuid.uuid4().hex)


def _parts(plan: Plan) -> dict[str, Any]:
    parts: dict[str, Any] = {"fn": plan.fn}
    if plan.resource is not None:
        parts["resource"] = plan.resource
    if plan.retry is not None and callable(plan.retry.on):
        parts["Retry.on"] = plan.retry.on
    if plan.retry is not None and plan.retry.on_result is not None:
        parts["Retry.on_result"] = plan.retry.on_result
    return parts


def _dumped(name: str, part: Any) -> bytes:
    from pyspark import cloudpickle

    try:
        return bytes(cloudpickle.dumps(part))  # type: ignore[no-untyped-call]
    except Exception as refusal:
        which = f" {name_of(part)}" if callable(part) else ""
        raise InvalidPlanError(
            f"{name}{which} cannot be sent to the executors: {_held_by(part)}{refusal}. Open clients and the like in "
            "resource, a function that runs on the executors"
        ) from None


def _held_by(part: Any) -> str:
    """Which variable of a function is the one that cannot be sent."""
    from pyspark import cloudpickle

    code = getattr(part, "__code__", None)
    if code is None:
        return ""
    held = dict(zip(code.co_freevars, (cell.cell_contents for cell in part.__closure__ or ()), strict=False))
    held.update({name: part.__globals__[name] for name in code.co_names if name in part.__globals__})
    for name, value in held.items():
        try:
            cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
        except Exception:
            return f"it uses {name!r}, of type {type(value).__name__}: "
    return ""
