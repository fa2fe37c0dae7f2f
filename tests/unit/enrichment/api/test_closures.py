"""Tests of the objects that a function may not hold, without Spark."""

from __future__ import annotations

from typing import Any

import pytest

from spark_events.enrichment.api.closures import pickled
from spark_events.enrichment.plan import Plan
from spark_events.errors import InvalidPlanError


def test_a_connect_session_is_rejected_with_its_variable() -> None:
    """A function that holds a Connect session, which can be pickled, is rejected on the driver."""
    connect = pytest.importorskip("pyspark.sql.connect.session", exc_type=ImportError)
    if "__reduce__" not in vars(connect.SparkSession):
        pytest.skip("this Spark version cannot pickle a Connect session")
    spark = object.__new__(connect.SparkSession)
    spark._session_id = "1"

    async def counts(row: Any) -> dict[str, Any]:
        return {"x": spark.range(1).count()}

    message = (
        "counts .* cannot be pickled for the executors: it uses 'spark', of type SparkSession: a Spark session works"
    )
    with pytest.raises(InvalidPlanError, match=message):
        pickled(Plan(counts))
