"""Tests of output schemas, including types that the installed Spark version does not have."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import types as spark_types
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    CharType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)

from spark_events.enrichment.api.schema import check_carried, output_of
from spark_events.errors import InvalidPlanError

_CONF = SimpleNamespace(get=lambda key, default: default)
_INTERNAL = "org.apache.spark.SparkException: [INTERNAL_ERROR] no output of that type"


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("\n[UNSUPPORTED_DATATYPE] lnog\n\n== SQL ==\nx", "[UNSUPPORTED_DATATYPE] lnog"),
        (f"An error occurred while calling o36.applySchema.\n: {_INTERNAL}\n\tat org.apache.A.b(A.scala)", _INTERNAL),
        ("An error occurred while calling o36.applySchema.", "An error occurred while calling o36.applySchema."),
        ("", "RuntimeError"),
    ],
)  # fmt: skip
def test_an_unparsable_schema_is_rejected_with_spark_s_reason(message: str, reason: str) -> None:
    """The message about an invalid schema contains Spark's reason, without the lines that Py4J adds."""

    def refuse(rows: list[Any], schema: str) -> None:
        raise RuntimeError(message)

    df: Any = SimpleNamespace(sparkSession=SimpleNamespace(createDataFrame=refuse, conf=_CONF), columns=[])
    with pytest.raises(InvalidPlanError) as caught:
        output_of(df, "c char(3)")
    assert str(caught.value) == f"output is 'c char(3)', which Spark cannot parse: {reason}"


_CHARS = "[INTERNAL_ERROR] Logical plan should not have output of char/varchar type"


def _spark_that(answer: Any) -> Any:
    def create(rows: list[Any], schema: str) -> Any:
        if isinstance(answer, str):
            raise RuntimeError(answer)
        return SimpleNamespace(schema=answer)

    return SimpleNamespace(sparkSession=SimpleNamespace(createDataFrame=create, conf=_CONF), columns=["id"])


_TWINS = StructType([StructField("a", StringType()), StructField("b", StringType()), StructField("a", StringType())])


@pytest.mark.parametrize(
    ("output", "read", "message"),
    [
        ("c char(3)", _CHARS, "output is 'c char(3)', with type char or varchar; allowed for text: string"),
        (None, StructType([StructField("c", CharType(3))]), "type char(3) is not supported; allowed: decimals"),
        (
            None, StructType([StructField("c", ArrayType(VarcharType(3)))]),
            "type varchar(3) is not supported; allowed: decimals",
        ),
        (None, StructType([StructField("", StringType())]), "output has a column with an empty name"),
        ("x", StructType([StructField("s", _TWINS)]), "output has 's', a struct with several fields named 'a'"),
        (
            None, StructType([StructField("m", MapType(StringType(), _TWINS))]),
            "output has 'm.value', a struct with several fields named 'a'",
        ),
    ],
)  # fmt: skip
def test_an_invalid_output_is_rejected_with_the_allowed_values(output: Any, read: Any, message: str) -> None:
    """The message about an invalid output contains its location, the allowed values, and only given arguments."""
    with pytest.raises(InvalidPlanError) as caught:
        output_of(_spark_that(read), output or read)
    assert message in str(caught.value)


class UnknownType(DataType):
    """Type that a future PySpark version may add."""


#: Types that only some PySpark versions have.
YearMonthIntervalType = getattr(spark_types, "YearMonthIntervalType", UnknownType)
CalendarIntervalType = getattr(spark_types, "CalendarIntervalType", UnknownType)


@pytest.mark.parametrize("kind", [UnknownType(), ArrayType(StructType([StructField("i", UnknownType())]))], ids=str)
def test_an_unsupported_output_type_is_rejected_with_the_supported_types(kind: DataType) -> None:
    fields = [StructField("id", StringType())]
    df: Any = SimpleNamespace(schema=StructType(fields), columns=["id"])
    with pytest.raises(InvalidPlanError) as caught:
        output_of(df, StructType([StructField("c", kind)]))
    message = "output cannot be converted to Arrow: type unknown is not supported; allowed: decimals, bigint, binary,"
    assert message in str(caught.value)
    assert "timestamp_ntz, tinyint, void, and arrays, maps and structs of these" in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "described"),
    [
        (UnknownType(), "'c', unknown,"),
        (YearMonthIntervalType(), "'c', interval year to month,"),
        (CalendarIntervalType(), "'c', interval,"),
        (ArrayType(YearMonthIntervalType()), "'c.element', interval year to month,"),
        (MapType(StringType(), CalendarIntervalType()), "'c.value', interval,"),
        (StructType([StructField("i", ArrayType(CalendarIntervalType()))]), "'c.i.element', interval,"),
        (CharType(5), "'c', char(5),"),
        (ArrayType(VarcharType(5)), "'c.element', varchar(5),"),
        (_TWINS, "'c', a struct with several fields named 'a',"),
        (MapType(_TWINS, StringType()), "'c.key', a struct with several fields named 'a',"),
    ],
    ids=str,
)
def test_a_column_unsupported_by_arrow_is_named_with_its_type(kind: DataType, described: str) -> None:
    """The message about a column that Arrow does not support contains the column's type and the remedy."""
    df: Any = SimpleNamespace(schema=StructType([StructField("id", StringType()), StructField("c", kind)]))
    with pytest.raises(InvalidPlanError) as caught:
        check_carried(df)
    if UnknownType in (YearMonthIntervalType, CalendarIntervalType):
        described = described.replace("interval year to month", "unknown").replace("interval", "unknown")
    assert f"the DataFrame has {described} which Arrow does not support" in str(caught.value)
    assert "cast that column to another type, or drop it" in str(caught.value)


def test_columns_supported_by_arrow_are_accepted() -> None:
    """Columns that Arrow supports are accepted, even if the names of their fields differ only in case."""
    kinds: list[DataType] = [
        StringType(), DayTimeIntervalType(), NullType(), TimestampNTZType(), DecimalType(38, 3),
        StructType([StructField("a", StringType()), StructField("A", BinaryType())]), StructType([]),
        MapType(DateType(), ArrayType(TimestampType())),
    ]  # fmt: skip
    columns = [StructField(f"c{n}", kind) for n, kind in enumerate(kinds)]
    check_carried(SimpleNamespace(schema=StructType(columns)))  # type: ignore[arg-type]
    # The columns are checked in order, so the only unsupported column, the last one, is named.
    columns.append(StructField("last", CharType(5)))
    with pytest.raises(InvalidPlanError, match=r"the DataFrame has 'last', char\(5\),"):
        check_carried(SimpleNamespace(schema=StructType(columns)))  # type: ignore[arg-type]
