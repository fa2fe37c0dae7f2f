"""Tests of the options of an enrichment, and of the message for unknown ones."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import pytest

from spark_events import InvalidPlanError, enrich, enrich_batch
from spark_events.enrichment.api.options import plan_of
from spark_events.enrichment.plan import Plan


async def lookup(row: Any) -> dict[str, Any]:
    return {}


def of(function: Any) -> set[str]:
    """Return the options that are separate arguments."""
    kinds = inspect.signature(function).parameters.values()
    return {one.name for one in kinds if one.kind is inspect.Parameter.KEYWORD_ONLY}


@pytest.mark.parametrize("given", ["input_col", "storage"])
def test_an_unknown_option_is_rejected_with_the_known_ones(given: str) -> None:
    """Including those that are separate arguments; options of whole batches are marked."""
    with pytest.raises(InvalidPlanError) as caught:
        plan_of(None, lookup, {given: "x"})  # type: ignore[arg-type, misc]
    refusal, _, allowed = str(caught.value).partition("; allowed: ")
    both, _, of_a_batch = allowed.partition("; with enrich_batch also: ")
    assert refusal == f"unknown option {given!r}"
    plan = {field.name for field in dataclasses.fields(Plan)} - {"fn"}
    assert set(of_a_batch.split(", ")) == of(enrich_batch) - of(enrich) - {"on_failure"} | {"max_failure_ratio"}
    assert set(both.split(", ")) == (plan | of(enrich)) - {"max_failure_ratio"}
