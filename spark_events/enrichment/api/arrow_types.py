"""Spark's types as Arrow's. PySpark has this, too, but not for others, and differently in each version."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import types as spark

__all__ = ["PLAIN", "arrow_schema"]

#: Those that every Spark and Arrow have, by their class, but for decimals and what is nested.
PLAIN: dict[type, pa.DataType] = {
    spark.BooleanType: pa.bool_(),
    spark.ByteType: pa.int8(),
    spark.ShortType: pa.int16(),
    spark.IntegerType: pa.int32(),
    spark.LongType: pa.int64(),
    spark.FloatType: pa.float32(),
    spark.DoubleType: pa.float64(),
    spark.StringType: pa.string(),
    spark.BinaryType: pa.binary(),
    spark.DateType: pa.date32(),
    spark.TimestampType: pa.timestamp("us", tz="UTC"),
    spark.TimestampNTZType: pa.timestamp("us"),
    spark.DayTimeIntervalType: pa.duration("us"),
    spark.NullType: pa.null(),
}


def arrow_schema(schema: spark.StructType) -> pa.Schema:
    """The schema as ``mapInArrow`` wants to have it.

    Raises:
        TypeError: a type that is not supported; the message names it, and those that are.
    """
    return pa.schema([_field(field.name, field.dataType, field.nullable) for field in schema.fields])


def _field(name: str, kind: spark.DataType, nullable: bool) -> pa.Field:
    return pa.field(name, _type(kind), nullable)


def _type(kind: Any) -> pa.DataType:
    if isinstance(kind, spark.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, spark.ArrayType):
        return pa.list_(_field("element", kind.elementType, kind.containsNull))
    if isinstance(kind, spark.MapType):
        return pa.map_(_field("key", kind.keyType, False), _field("value", kind.valueType, kind.valueContainsNull))
    if isinstance(kind, spark.StructType):
        return pa.struct([_field(part.name, part.dataType, part.nullable) for part in kind.fields])
    plain = PLAIN.get(type(kind))
    if plain is None:
        # Newer Sparks have more, which not every one that is supported can hand to Arrow.
        allowed = ", ".join(["decimals", *sorted(one().simpleString() for one in PLAIN)])
        raise TypeError(
            f"{kind.simpleString()} is not allowed; allowed are {allowed}, and arrays, maps and structs of these"
        )
    return plain
