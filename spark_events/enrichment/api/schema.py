"""Columns that an enrichment adds to a DataFrame; they are checked on the driver before any task runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from spark_events.errors import InvalidPlanError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

__all__ = [
    "Output", "check_carried", "check_collation", "check_received", "existing", "output_of", "quoted", "typed",
]  # fmt: skip


#: The collation that compares strings by their bytes; before Spark 4, it is the only one.
_BY_BYTES = "UTF8_BINARY"


#: Settings of a session on which the meaning of column definitions depends.
_PARSER_SETTINGS = ("spark.sql.timestampType", "spark.sql.ansi.enabled")
#: Parsed column definitions, by text and settings.
_schemas: dict[tuple[str | None, ...], StructType] = {}
_MOST_SCHEMAS = 100


@dataclasses.dataclass(frozen=True, slots=True)
class Output:
    """Columns of the answers, as a Spark schema and as an Arrow schema."""

    spark: StructType
    arrow: pa.Schema

    @property
    def names(self) -> list[str]:
        """Column names, in order."""
        return list(self.spark.names)

    def serialised(self) -> bytes:
        """Return the Arrow schema in a format that other pyarrow versions can read."""
        return bytes(self.arrow.serialize())


def output_of(df: DataFrame, output: Any, failure_column: str = "") -> Output:
    """Return the columns of the answers.

    Args:
        df: the DataFrame that receives the columns.
        output: column definitions such as ``"country string, risk double not null"``, a ``StructType``, or a class.
        failure_column: the name of the column for failures; "" if there is none.

    Raises:
        InvalidPlanError: when ``output`` cannot be parsed or is empty, or when a new column has a name that exists
            already (compared case-insensitively, as in Spark).
    """
    from spark_events.enrichment.api.arrow_types import arrow_schema
    from spark_events.enrichment.worker.report import COLUMN

    spark = _parsed(df, output)
    if not spark.fields:
        raise InvalidPlanError("output is empty; allowed: column definitions such as 'country string, risk double'")
    taken = {name.lower(): f"the DataFrame has a column {name!r}" for name in df.columns}
    taken[COLUMN.lower()] = f"{COLUMN!r} is a name that spark-events uses itself"
    added = [(f"OnFailure.column is {failure_column!r}", failure_column)] if failure_column else []
    added += [(f"output has a column {name!r}", name) for name in spark.names]
    for text, name in added:
        if not name:
            raise InvalidPlanError("output has a column with an empty name; allowed: columns with a name")
        if name.lower() in taken:
            raise InvalidPlanError(f"{text}, and {taken[name.lower()]}: rename or drop one of them first")
        taken[name.lower()] = text
    for path, kind, _ in _parts(spark):
        if twin := _twin(kind):
            raise InvalidPlanError(f"output has {path!r}, a struct with several fields named {twin!r}: rename them")
    try:
        arrow = arrow_schema(spark)
    except (TypeError, ValueError) as unsupported:
        raise InvalidPlanError(f"output cannot be converted to Arrow: {unsupported}") from None
    return Output(spark, arrow)


def check_carried(df: DataFrame) -> None:
    """Check the names and the types of all columns, because every column passes through the tasks in Arrow format.

    Raises:
        InvalidPlanError: when a column has a reserved name, or when Arrow does not support the type of a column or of a
            nested field.
    """
    from pyspark.sql.types import NullType

    from spark_events.enrichment.worker.report import COLUMN

    for name in df.schema.names:
        if name.lower() == COLUMN.lower():
            raise InvalidPlanError(
                f"the DataFrame has a column {name!r}, a name that spark-events uses itself: rename or drop it"
            )
    for path, kind, nullable in _parts(df.schema):
        if twin := _twin(kind):
            reason = f"a struct with several fields named {twin!r}"
        elif isinstance(kind, NullType) and not nullable:
            reason = "the type of array() or map() without elements (void)"
        elif _is_foreign(kind):
            reason = kind.simpleString()
        else:
            continue
        raise InvalidPlanError(
            f"the DataFrame has {path!r}, {reason}, which Arrow does not support; all columns are converted to Arrow, "
            "not only input_cols: cast that column to another type, or drop it and join it to the result by a key"
        )


def check_received(df: DataFrame, columns: Iterable[str]) -> None:
    """Check that the function can read the columns that it receives.

    Raises:
        InvalidPlanError: when a column is or contains a variant, of which the function would receive undecoded bytes.
    """
    from pyspark.sql.types import StructType

    for column in columns:
        for path, kind, _ in _parts(StructType([df.schema[column]])):
            if kind.typeName() == "variant":
                raise InvalidPlanError(
                    f"the function would receive {path!r}, a variant, as undecoded bytes: convert it with "
                    "to_json or variant_get, or list the other columns in input_cols"
                )


def check_collation(df: DataFrame, name: str, columns: Iterable[str]) -> None:
    """Check that Spark compares the strings in these columns by their bytes, as the enrichment does.

    Raises:
        InvalidPlanError: when one of these columns contains strings with another collation.
    """
    from pyspark.sql.types import StructType

    for column in columns:
        for _, kind, _ in _parts(StructType([df.schema[column]])):
            collation = getattr(kind, "collation", _BY_BYTES)
            if collation != _BY_BYTES:
                raise InvalidPlanError(
                    f"{name} compares {column!r} by its bytes, but Spark compares its text with the collation "
                    f"{collation}: add a column derived from it with the collation {_BY_BYTES}, such as lower(text) "
                    f"collate {_BY_BYTES}, and name that column"
                )


def existing(df: DataFrame, name: str, columns: Iterable[str] | None) -> tuple[str, ...]:
    """Return columns spelled as in the DataFrame; all columns if ``columns`` is None.

    Raises:
        InvalidPlanError: when a column does not exist or its name is ambiguous.
    """
    present = df.columns
    wanted = present if columns is None else [columns] if isinstance(columns, str) else list(columns)
    found = []
    for column in wanted:
        same = [one for one in present if one == column] or [one for one in present if one.lower() == column.lower()]
        if len(same) > 1:
            raise InvalidPlanError(
                f"{name} contains {column!r}, but the DataFrame has {len(same)} such columns: rename all but one"
            )
        if not same:
            raise InvalidPlanError(f"{name} contains {column!r}, which does not exist; allowed: {', '.join(present)}")
        found.append(same[0])
    return tuple(found)


def typed(schema: StructType, columns: Iterable[str]) -> list[tuple[str, str]]:
    """Return columns with their types, as a string that is the same in every process."""
    return [(name, schema[name].dataType.json()) for name in columns]


def quoted(name: str) -> str:
    """Quote a column name for Spark's parser, so that it reads a dot or backtick as part of the name."""
    return f"`{name.replace('`', '``')}`"


def _parts(schema: StructType) -> Iterator[tuple[str, DataType, bool]]:
    """Yield the path and type of every column and of every nested field, and whether it may be null."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    left: list[tuple[str, DataType, bool]] = [
        (field.name, field.dataType, field.nullable) for field in reversed(schema.fields)
    ]
    while left:
        path, kind, nullable = left.pop()
        yield path, kind, nullable
        if isinstance(kind, ArrayType):
            left.append((f"{path}.element", kind.elementType, kind.containsNull))
        elif isinstance(kind, MapType):
            left.append((f"{path}.value", kind.valueType, kind.valueContainsNull))
            left.append((f"{path}.key", kind.keyType, False))
        elif isinstance(kind, StructType):
            left += [(f"{path}.{field.name}", field.dataType, field.nullable) for field in reversed(kind.fields)]


def _twin(kind: DataType) -> str | None:
    """Return a name that several fields of a struct share, or None; Arrow is case-sensitive."""
    from pyspark.sql.types import StructType

    names = kind.names if isinstance(kind, StructType) else []
    return next((name for index, name in enumerate(names) if name in names[:index]), None)


def _is_foreign(kind: DataType) -> bool:
    """Return whether this Spark version cannot convert the type to Arrow."""
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import ArrayType, DecimalType, MapType, StructType, UserDefinedType

    from spark_events.enrichment.api.arrow_types import PLAIN

    if type(kind) in PLAIN or isinstance(kind, DecimalType):
        return False
    # `_parts` yields nested types separately. Spark itself converts user-defined types.
    if isinstance(kind, (ArrayType, MapType, StructType, UserDefinedType)):
        return False
    try:
        to_arrow_type(kind)
    except Exception:
        return True
    return False


def _parsed(df: DataFrame, output: Any) -> StructType:
    from pyspark.sql.types import StructType

    from spark_events.enrichment.api.models import schema_of
    from spark_events.enrichment.engine.models import is_model

    if isinstance(output, StructType):
        return output
    if is_model(output):
        return schema_of(output)
    if not isinstance(output, str) or not output.strip():
        raise InvalidPlanError(
            f"output is {output!r}; allowed: column definitions such as 'country string, risk double', a StructType, "
            "or a dataclass, TypedDict or Pydantic model"
        )
    # A stream parses the same text in every micro-batch. These settings change the result.
    session = df.sparkSession
    key = (output, *(session.conf.get(name, None) for name in _PARSER_SETTINGS))
    if key in _schemas:
        return _schemas[key]
    try:
        # Create an empty DataFrame, which runs Spark's own parser. This public API is the same for classic and Connect
        # sessions of Spark 3.5 and 4.
        schema = _schemas[key] = session.createDataFrame([], output).schema
        while len(_schemas) > _MOST_SCHEMAS:
            del _schemas[next(iter(_schemas))]
        return schema
    except Exception as wrong:
        if "char/varchar" in str(wrong):
            # Spark parses char and varchar, but raises an internal error for these types later.
            raise InvalidPlanError(
                f"output is {output!r}, with type char or varchar; allowed for text: string"
            ) from None
        raise InvalidPlanError(f"output is {output!r}, which Spark cannot parse: {_reason(wrong)}") from None


def _reason(wrong: Exception) -> str:
    """Return the first line of Spark's own message, without the line that Py4J adds."""
    message = str(wrong).strip().splitlines() or [type(wrong).__name__]
    if len(message) > 1 and message[0].startswith("An error occurred while calling "):
        return message[1].lstrip(": ")
    return message[0]
