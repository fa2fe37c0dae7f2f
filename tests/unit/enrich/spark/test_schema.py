"""The output as it is written, by a Spark that cannot read it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from spark_events.enrich.spark.schema import output_of
from spark_events.errors import InvalidPlanError

_INTERNAL = "org.apache.spark.SparkException: [INTERNAL_ERROR] no output of char/varchar type"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("\n[UNSUPPORTED_DATATYPE] lnog\n\n== SQL ==\nx", "[UNSUPPORTED_DATATYPE] lnog"),
        (f"An error occurred while calling o36.applySchema.\n: {_INTERNAL}\n\tat org.apache.A.b(A.scala)", _INTERNAL),
        ("An error occurred while calling o36.applySchema.", "An error occurred while calling o36.applySchema."),
        ("", "RuntimeError"),
    ],
)  # fmt: skip
def test_what_spark_cannot_read_is_told_with_spark_s_own_reason(said: str, reason: str) -> None:
    """Not with what Py4J says before it."""

    def refuse(rows: list[Any], schema: str) -> None:
        raise RuntimeError(said)

    df: Any = SimpleNamespace(sparkSession=SimpleNamespace(createDataFrame=refuse), columns=[])
    with pytest.raises(InvalidPlanError) as caught:
        output_of(df, "c char(3)")
    assert str(caught.value) == f"output is 'c char(3)', which Spark cannot read: {reason}"
