"""Classes as ``output``, and conversion of their instances to mappings."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from spark_events.enrichment.engine.failure import RowFailure

__all__ = ["converter", "is_model"]

_MOST_ERRORS = 5


def is_model(output: Any) -> bool:
    """Return whether ``output`` is a class from which columns can be derived."""
    return isinstance(output, type) and (
        dataclasses.is_dataclass(output) or hasattr(output, "__required_keys__") or hasattr(output, "model_validate")
    )


def converter(model: type | None) -> Callable[[Any], Any] | None:
    """Return a function that converts a result to a mapping.

    If the model rejects the result, the function returns a failure. The engine checks the names and types of the
    mapping later, as it does for every answer.

    Args:
        model: a dataclass, a TypedDict or a Pydantic model; None: results are mappings.
    """
    if model is None:
        return None
    return functools.partial(_validated, model) if hasattr(model, "model_validate") else _plain


def _validated(model: Any, result: Any) -> Any:
    try:
        valid = result if isinstance(result, model) else model.model_validate(result)
    except ValueError as error:
        if type(error).__name__ != "ValidationError":
            raise
        # Omit the messages, because they may contain values.
        errors: Any = error.errors(include_url=False, include_input=False, include_context=False)  # type: ignore[attr-defined]
        wrong = [f"{'.'.join(map(str, one['loc'])) or 'the whole'} ({one['type']})" for one in errors]
        more = f" and {len(wrong) - _MOST_ERRORS} more" if len(wrong) > _MOST_ERRORS else ""
        message = f"{model.__name__} rejects the function's result: {', '.join(wrong[:_MOST_ERRORS])}{more}"
        return RowFailure(kind="error", type="OutputError", message=message, attempts=1)
    return valid.model_dump(by_alias=False, round_trip=True)


def _plain(value: Any) -> Any:
    """Convert dataclass instances, at any depth, to dictionaries."""
    if isinstance(value, (str, bytes)):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: _plain(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if type(value) is dict:
        return {name: _plain(part) for name, part in value.items()}
    if type(value) is list:
        return [_plain(one) for one in value]
    return value
