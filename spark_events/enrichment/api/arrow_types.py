"""Conversion of Spark types to Arrow types.

PySpark's own conversion is not public and differs between Spark versions.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import types as spark

__all__ = ["PLAIN", "arrow_schema"]

#: Types that exist in every supported version of Spark and Arrow, by class; `_type` converts decimals and nested types.
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
    """Return the Arrow schema of the answers that ``mapInArrow`` returns to Spark.

    Raises:
        TypeError: when a type is not supported; the message names the type and the supported types.
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
        # Newer versions of Spark have more types, which some supported versions cannot convert to Arrow.
        allowed = ", ".join(["decimals", *sorted(one().simpleString() for one in PLAIN)])
        raise TypeError(
            f"type {kind.simpleString()} is not supported; allowed: {allowed}, and arrays, maps and structs of these"
        )
    return plain
