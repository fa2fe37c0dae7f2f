"""Output columns from a dataclass, a TypedDict or a Pydantic model."""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import decimal
import types
import typing
from collections.abc import Iterator
from typing import Any

from pyspark.sql import types as spark

from spark_events.enrichment.engine.models import is_model
from spark_events.errors import InvalidPlanError

__all__ = ["schema_of"]

_PLAIN: dict[Any, spark.DataType] = {
    str: spark.StringType(),
    int: spark.LongType(),
    float: spark.DoubleType(),
    bool: spark.BooleanType(),
    bytes: spark.BinaryType(),
    datetime.datetime: spark.TimestampType(),
    datetime.date: spark.DateType(),
    decimal.Decimal: spark.DecimalType(38, 18),
}
_ALLOWED = (
    "str, int, float, bool, bytes, datetime, date, Decimal, Literal, Optional, list[T], dict[K, V], another "
    "such class, or Annotated[…, a Spark type]"
)


def schema_of(model: type) -> spark.StructType:
    """Return one column per field; a field is NOT NULL unless it is Optional.

    Raises:
        InvalidPlanError: when the type of a field is not supported, or cannot be read.
    """
    return _struct(model, model.__name__, ())


def _struct(model: type, path: str, outer: tuple[type, ...]) -> spark.StructType:
    if model in outer:
        raise InvalidPlanError(f"output has {path!r}, which contains itself; allowed: a fixed depth")
    fields = []
    for name, hint in _hints(model, path):
        kind, nullable = _type(hint, f"{path}.{name}", (*outer, model))
        fields.append(spark.StructField(name, kind, nullable))
    return spark.StructType(fields)


def _hints(model: Any, path: str) -> Iterator[tuple[str, Any]]:
    if hasattr(model, "model_validate"):
        for name, field in model.model_fields.items():
            given = [one for one in field.metadata if isinstance(one, spark.DataType)]
            yield name, typing.Annotated[field.annotation, given[0]] if given else field.annotation
        return
    try:
        found = typing.get_type_hints(model, include_extras=True)
    except Exception as error:
        raise InvalidPlanError(
            f"output {path} has an annotation that cannot be resolved ({error}): define that type in the module"
        ) from None
    names = [one.name for one in dataclasses.fields(model)] if dataclasses.is_dataclass(model) else list(found)
    for name in names:
        yield name, found[name]


def _type(hint: Any, path: str, outer: tuple[type, ...]) -> tuple[spark.DataType, bool]:
    """Return the Spark type of an annotation, and whether it allows None."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        given = next((one for one in args[1:] if isinstance(one, spark.DataType)), None)
        if given is None:
            return _type(args[0], path, outer)
        return given, type(None) in typing.get_args(args[0])
    if origin in (typing.Union, types.UnionType) and len(args) == 2 and type(None) in args:
        (inner,) = (one for one in args if one is not type(None))
        return _type(inner, path, outer)[0], True
    if origin is typing.Literal and len(kinds := {type(one) for one in args}) == 1:
        hint = kinds.pop()
    elif origin in (list, collections.abc.Sequence) and args:
        element, nullable = _type(args[0], f"{path}.element", outer)
        return spark.ArrayType(element, nullable), False
    elif origin in (dict, collections.abc.Mapping) and args:
        value, nullable = _type(args[1], f"{path}.value", outer)
        return spark.MapType(_type(args[0], f"{path}.key", outer)[0], value, nullable), False
    if is_model(hint):
        return _struct(hint, path, outer), False
    if hint not in _PLAIN:
        raise InvalidPlanError(f"output has {path!r} of type {hint!r}; allowed: {_ALLOWED}")
    return _PLAIN[hint], False
