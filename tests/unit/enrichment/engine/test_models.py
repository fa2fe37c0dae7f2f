"""Tests of classes as the output: instances become mappings, and invalid answers fail or are retried."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import pydantic
import pytest
from enrich_engine import Run, chunks_of, definition

from spark_events.enrichment.engine.engine import Engine
from spark_events.enrichment.engine.failure import RowFailure
from spark_events.enrichment.engine.models import converter
from spark_events.enrichment.plan import Plan
from spark_events.enrichment.settings import Retry


@dataclasses.dataclass
class Place:
    city: str


@dataclasses.dataclass
class User:
    name: str
    places: list[Place]


class Risk(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(populate_by_name=True)

    score: float = pydantic.Field(ge=0, le=1, alias="riskScore")
    reason: str | None = None


AT_ONCE = Retry(attempts=3, initial=0, jitter=0, on_invalid=True)


def test_instances_become_mappings() -> None:
    """Instances of the class become mappings, at any depth. Mappings are accepted as well."""
    convert = converter(User)
    assert convert is not None
    expected = {"name": "a", "places": [{"city": "x"}]}
    assert convert(User("a", [Place("x")])) == expected
    assert convert({"name": "a", "places": [Place("x")]}) == expected
    validate = converter(Risk)
    assert validate is not None
    for given in (Risk(riskScore=0.5), {"riskScore": 0.5}, {"score": "0.5"}):
        assert validate(given) == {"score": 0.5, "reason": None}
    assert converter(None) is None


def test_a_rejection_names_fields_and_no_values() -> None:
    """If Pydantic rejects an answer, the failure contains the fields and kinds of errors, but never the values."""
    validate = converter(Risk)
    assert validate is not None
    failure = validate({"riskScore": 7, "reason": 5})
    assert isinstance(failure, RowFailure)
    assert failure.type == "OutputError"
    assert failure.message == ("Risk rejects the function's result: riskScore (less_than_equal), reason (string_type)")
    assert isinstance(validate("secret"), RowFailure)
    assert "secret" not in validate("secret").message


@pytest.mark.parametrize("bulk", [False, True])
def test_invalid_answers_are_retried_on_demand(bulk: bool) -> None:
    """With on_invalid, an invalid answer is a failed attempt, even in a bulk call, and at most its own row fails."""
    attempts: Counter[int] = Counter()

    def answer(row: int) -> dict[str, Any]:
        attempts[row] += 1
        valid = row == 0 or (row == 1 and attempts[1] == 3)
        return {"riskScore": 0.5 if valid else 7}

    async def one(row: int) -> dict[str, Any]:
        return answer(row)

    async def several(rows: list[int]) -> list[dict[str, Any]]:
        return [answer(row) for row in rows]

    run = Run(several if bulk else one, model=Risk, retry=AT_ONCE, batch_size=3 if bulk else None)
    first, second, third = run.of([0, 1, 2])
    assert first == second == {"score": 0.5, "reason": None}
    assert (third.kind, third.type, third.attempts) == ("result", "OutputError", 3)
    assert attempts == {0: 1, 1: 3, 2: 3}
    assert run.numbers["attempts"] == (3 if bulk else 7)


def test_invalid_answers_are_not_retried_by_default() -> None:
    """Without on_invalid, an invalid answer fails its row after one attempt."""
    called: list[int] = []

    async def fn(row: int) -> dict[str, Any]:
        called.append(row)
        return {"riskScore": 7}

    (failure,) = Run(fn, model=Risk).of([0])
    assert (failure.kind, failure.type) == ("error", "OutputError")
    assert called == [0]


def test_answers_that_do_not_fit_columns_are_retried() -> None:
    """With on_invalid, an answer that does not match the columns is also retried, even without a class."""
    attempts = 0

    async def fn(row: int) -> str:
        nonlocal attempts
        attempts += 1
        return "good" if attempts == 2 else "bad"

    def misfit(answer: Any) -> RowFailure | None:
        return RowFailure("error", "OutputError", "bad") if answer == "bad" else None

    engine = Engine(Plan(fn, retry=AT_ONCE), definition(), misfit)
    assert [answers for _, answers in engine.run(chunks_of([0]))] == [["good"]]


def test_an_error_of_the_model_itself_fails_the_row() -> None:
    """If a validator raises an error other than a rejection, the row fails with this error."""

    class Broken:
        @staticmethod
        def model_validate(_: Any) -> Any:
            raise KeyError("x")

    async def fn(row: int) -> dict[str, Any]:
        return {}

    (failure,) = Run(fn, model=Broken).of([0])
    assert (failure.kind, failure.type) == ("error", "KeyError")
