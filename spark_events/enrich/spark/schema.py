"""What an enrichment adds to a DataFrame, checked on the driver before anything runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from spark_events.errors import InvalidPlanError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

__all__ = ["Output", "check_collation", "check_failure_column", "existing", "output_of", "quoted", "typed"]


#: Of text that is equal where its bytes are, which is all there is before Spark 4.
_BY_BYTES = "UTF8_BINARY"


@dataclasses.dataclass(frozen=True, slots=True)
class Output:
    """The columns of the answers, as Spark and as Arrow know them."""

    spark: StructType
    arrow: pa.Schema

    @property
    def names(self) -> list[str]:
        """In order."""
        return list(self.spark.names)

    def serialised(self) -> bytes:
        """The Arrow schema, for another version of pyarrow to read."""
        return bytes(self.arrow.serialize())


def output_of(df: DataFrame, output: Any, reserved: Sequence[str] = (), failure_column: str = "") -> Output:
    """The columns that the answers make.

    Args:
        df: what they are added to.
        output: as ``"country string, risk double not null"``, or a ``StructType``.
        reserved: other columns that will be added.
        failure_column: the one for failures, where there will be one.

    Raises:
        InvalidPlanError: it cannot be read, is empty, or a name is there already.
    """
    from spark_events.enrich.spark.arrow_types import arrow_schema

    spark = _parsed(df, output)
    if not spark.fields:
        raise InvalidPlanError("output is empty; allowed: columns as 'country string, risk double'")
    taken = {name.lower(): name for name in df.columns}
    taken.update({name.lower(): name for name in reserved})
    for name in spark.names:
        if name.lower() == failure_column.lower():
            raise InvalidPlanError(
                f"output has a column {name!r}, and failure_column is {failure_column!r}: name one of them differently"
            )
        if name.lower() in taken:
            raise InvalidPlanError(
                f"output has a column {name!r}, and so has the DataFrame, {taken[name.lower()]!r}: name it "
                "differently, or drop that column first"
            )
        taken[name.lower()] = name
    try:
        arrow = arrow_schema(spark)
    except TypeError as unsupported:
        raise InvalidPlanError(f"output cannot be: {unsupported}") from None
    return Output(spark, arrow)


def check_failure_column(df: DataFrame, name: object) -> None:
    """That the column for failures can be added.

    Raises:
        InvalidPlanError: it has no name, or one that is there already; to Spark, in capitals or not.
    """
    if not isinstance(name, str) or not name:
        raise InvalidPlanError(f"failure_column is {name!r}; allowed: the name of a column")
    for column in df.columns:
        if column.lower() == name.lower():
            raise InvalidPlanError(
                f"failure_column is {name!r}, and the DataFrame has a column {column!r} already: name it differently, "
                "or drop that column first"
            )


def check_collation(df: DataFrame, name: str, columns: Iterable[str]) -> None:
    """That values which are equal to Spark are equal here, too, where text is compared by its bytes.

    Raises:
        InvalidPlanError: there is text with another collation in one of these columns.
    """
    for column in columns:
        for collation in _collations(df.schema[column].dataType):
            if collation != _BY_BYTES:
                raise InvalidPlanError(
                    f"{name} compares {column!r}, whose text has the collation {collation}: to Spark other texts are "
                    f"equal than here; name a column that is made of it and has the collation {_BY_BYTES}, as "
                    f"lower(text) collate {_BY_BYTES}"
                )


def existing(df: DataFrame, name: str, columns: Iterable[str] | None) -> tuple[str, ...]:
    """Columns by the names that the DataFrame has for them; without any, all.

    Raises:
        InvalidPlanError: there is no such column, or there are several.
    """
    present = df.columns
    wanted = present if columns is None else [columns] if isinstance(columns, str) else list(columns)
    found = []
    for column in wanted:
        same = [one for one in present if one == column] or [one for one in present if one.lower() == column.lower()]
        if len(same) > 1:
            raise InvalidPlanError(
                f"{name} names {column!r}, and the DataFrame has {len(same)} such columns: rename one"
            )
        if not same:
            raise InvalidPlanError(f"{name} names {column!r}; the DataFrame has {', '.join(present)}")
        found.append(same[0])
    return tuple(found)


def typed(schema: StructType, columns: Iterable[str]) -> list[tuple[str, str]]:
    """Columns with their types, as text that is the same in every process."""
    return [(name, schema[name].dataType.json()) for name in columns]


def quoted(name: str) -> str:
    """A column's name as Spark reads it from text: a dot in it is no path, and a backtick no quote."""
    return f"`{name.replace('`', '``')}`"


def _collations(kind: DataType) -> Iterator[str]:
    """Of all text in it."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, ArrayType):
        yield from _collations(kind.elementType)
    elif isinstance(kind, MapType):
        yield from _collations(kind.keyType)
        yield from _collations(kind.valueType)
    elif isinstance(kind, StructType):
        for field in kind.fields:
            yield from _collations(field.dataType)
    else:
        yield getattr(kind, "collation", _BY_BYTES)


def _parsed(df: DataFrame, output: Any) -> StructType:
    from pyspark.sql.types import StructType

    if isinstance(output, StructType):
        return output
    if not isinstance(output, str) or not output.strip():
        raise InvalidPlanError(
            f"output is {output!r}; allowed: columns as 'country string, risk double', or a StructType"
        )
    try:
        # Spark's own parser, by a way that is open in classic and in Connect, in 3.5 and in 4.
        return df.sparkSession.createDataFrame([], output).schema
    except Exception as wrong:
        raise InvalidPlanError(f"output is {output!r}, which Spark cannot read: {_reason(wrong)}") from None


def _reason(wrong: Exception) -> str:
    """The first line that is Spark's; before an exception that PySpark does not know, Py4J has one of its own."""
    said = str(wrong).strip().splitlines() or [type(wrong).__name__]
    if len(said) > 1 and said[0].startswith("An error occurred while calling "):
        return said[1].lstrip(": ")
    return said[0]
