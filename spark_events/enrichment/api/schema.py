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

__all__ = [
    "Output", "check_carried", "check_collation", "check_failure_column", "existing", "output_of", "quoted", "typed",
]  # fmt: skip


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
    from spark_events.enrichment.api.arrow_types import arrow_schema

    spark = _parsed(df, output)
    if not spark.fields:
        raise InvalidPlanError("output is empty; allowed: columns as 'country string, risk double'")
    taken = {name.lower(): name for name in df.columns}
    taken.update({name.lower(): name for name in reserved})
    for name in spark.names:
        if not name:
            raise InvalidPlanError("output has a column '', which no answer can name; allowed: columns with a name")
        if failure_column and name.lower() == failure_column.lower():
            raise InvalidPlanError(
                f"output has a column {name!r}, and failure_column is {failure_column!r}: name one of them differently"
            )
        if name.lower() in taken:
            raise InvalidPlanError(
                f"output has a column {name!r}, and so has the DataFrame, {taken[name.lower()]!r}: name it "
                "differently, or drop that column first"
            )
        taken[name.lower()] = name
    for path, kind in _parts(spark):
        if _is_char(kind):
            raise InvalidPlanError(f"output has {path!r} of the type {kind.simpleString()}; allowed for text: string")
        if twin := _twin(kind):
            raise InvalidPlanError(f"output has {path!r}, a struct with several fields {twin!r}: name them differently")
    try:
        arrow = arrow_schema(spark)
    except TypeError as unsupported:
        raise InvalidPlanError(f"output cannot be: {unsupported}") from None
    return Output(spark, arrow)


def check_carried(df: DataFrame) -> None:
    """That Arrow carries all columns, for the others pass through the function's tasks with those that it gets.

    Raises:
        InvalidPlanError: it does not carry one, or something in it.
    """
    for path, kind in _parts(df.schema):
        if twin := _twin(kind):
            reason = f"a struct with several fields {twin!r}"
        elif _is_foreign(kind):
            reason = kind.simpleString()
        else:
            continue
        raise InvalidPlanError(
            f"the DataFrame has {path!r}, {reason}, which Arrow does not carry; all columns go through it, not only "
            "input_cols: cast that column to another type, or drop it, and join it to the result by a key where you "
            "need it"
        )


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


def _parts(schema: StructType) -> Iterator[tuple[str, DataType]]:
    """The types of all columns and of all that is below them, with their paths."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    left: list[tuple[str, DataType]] = [(field.name, field.dataType) for field in reversed(schema.fields)]
    while left:
        path, kind = left.pop()
        yield path, kind
        if isinstance(kind, ArrayType):
            left.append((f"{path}.element", kind.elementType))
        elif isinstance(kind, MapType):
            left += [(f"{path}.value", kind.valueType), (f"{path}.key", kind.keyType)]
        elif isinstance(kind, StructType):
            left += [(f"{path}.{field.name}", field.dataType) for field in reversed(kind.fields)]


def _twin(kind: DataType) -> str | None:
    """The name that several fields of a struct have; in capitals it is another one, to Arrow."""
    from pyspark.sql.types import StructType

    names = kind.names if isinstance(kind, StructType) else []
    return next((name for place, name in enumerate(names) if name in names[:place]), None)


def _is_foreign(kind: DataType) -> bool:
    """Whether this Spark has no type of Arrow's for it; which these are differs from one version to the next."""
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import ArrayType, DecimalType, MapType, StructType, UserDefinedType

    from spark_events.enrichment.api.arrow_types import PLAIN

    if type(kind) in PLAIN or isinstance(kind, DecimalType):
        return False
    # What is nested is looked at by itself, and what stands for another type is left to Spark.
    if isinstance(kind, (ArrayType, MapType, StructType, UserDefinedType)):
        return False
    try:
        to_arrow_type(kind)
    except Exception:
        return True
    return False


def _is_char(kind: DataType) -> bool:
    from pyspark.sql.types import CharType, VarcharType

    return isinstance(kind, (CharType, VarcharType))


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
        if "char/varchar" in str(wrong):
            # It has understood, and calls it an internal error.
            raise InvalidPlanError(f"output is {output!r}, with a char or varchar; allowed for text: string") from None
        raise InvalidPlanError(f"output is {output!r}, which Spark cannot read: {_reason(wrong)}") from None


def _reason(wrong: Exception) -> str:
    """The first line that is Spark's; before an exception that PySpark does not know, Py4J has one of its own."""
    said = str(wrong).strip().splitlines() or [type(wrong).__name__]
    if len(said) > 1 and said[0].startswith("An error occurred while calling "):
        return said[1].lstrip(": ")
    return said[0]
