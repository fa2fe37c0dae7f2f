"""Tests of the combination of a key with shared answers, without Spark."""

from __future__ import annotations

from typing import Any

import pytest

from spark_events.enrichment.api.key_order import check_shared_answers
from spark_events.enrichment.plan import Plan
from spark_events.enrichment.settings import Cache
from spark_events.errors import InvalidPlanError


async def fn(row: Any) -> None: ...


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"coalesce_by": ["item"]}, r"Cache\.by lacks 'account', a column of key"),
        ({"coalesce_by": ["item"], "cache": Cache(by="item")}, r"Cache\.by lacks 'account', a column of key"),
        ({"cache": Cache()}, r"input_cols lacks 'account', a column of key"),
    ],
)
def test_keys_that_would_share_an_answer_are_rejected(options: dict[str, Any], message: str) -> None:
    """Rows of different keys may not share an answer if the failure of a row must stop its key."""
    plan = Plan(fn, key=("account",), **options)
    with pytest.raises(InvalidPlanError, match=message):
        check_shared_answers(plan, ["item"])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"coalesce_by": ["item", "account"]},
        {"coalesce_by": ["item"], "on_failure": "null"},
        {"cache": Cache()},
        {"coalesce_by": ["item"], "key": None},
    ],
)
def test_keys_with_separate_answers_are_accepted(options: dict[str, Any]) -> None:
    check_shared_answers(Plan(fn, **{"key": ("account",), **options}), ["account", "item"])
