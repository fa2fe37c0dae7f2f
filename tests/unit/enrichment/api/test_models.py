"""Tests of the output columns that spark-events derives from classes."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
from typing import Annotated, Any, Dict, List, Literal, Optional, TypedDict  # noqa: UP035 — the older forms are tested

import pydantic
import pytest
from pyspark.sql.types import DecimalType

from spark_events.enrichment.api.models import schema_of
from spark_events.enrichment.api.schema import output_of
from spark_events.errors import InvalidPlanError


@dataclasses.dataclass
class Place:
    city: str
    zone: Optional[int] = None  # noqa: UP045 — the older form is tested


@dataclasses.dataclass
class Every:
    text: str
    whole: int
    real: float
    flag: bool
    data: bytes
    at: datetime.datetime
    day: datetime.date
    price: decimal.Decimal
    exact: Annotated[decimal.Decimal, DecimalType(10, 2)]
    kind: Literal["a", "b"]
    maybe: str | None
    tags: list[str | None]
    counts: dict[str, int]
    place: Place


class Reply(TypedDict):
    text: str
    place: Place | None


class Risk(pydantic.BaseModel):
    country: str
    score: Annotated[float, pydantic.Field(ge=0, le=1)]
    price: Annotated[decimal.Decimal, DecimalType(10, 2)]
    places: list[Place] = []


@dataclasses.dataclass
class Tree:
    left: Tree | None


class Unknown(TypedDict):
    value: Any


class Both(TypedDict):
    value: int | str


class BareList(TypedDict):
    value: List  # type: ignore[type-arg]  # noqa: UP006 — the older form is tested


class BareDict(TypedDict):
    value: Dict  # type: ignore[type-arg]  # noqa: UP006 — the older form is tested


class Missing(TypedDict):
    value: Nowhere  # type: ignore[name-defined]  # noqa: F821 — the case under test


_PLACE = "struct<city:string,zone:bigint>"


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (
            Every,
            "struct<text:string,whole:bigint,real:double,flag:boolean,data:binary,at:timestamp,day:date,"
            "price:decimal(38,18),exact:decimal(10,2),kind:string,maybe:string,tags:array<string>,"
            f"counts:map<string,bigint>,place:{_PLACE}>",
        ),
        (Reply, f"struct<text:string,place:{_PLACE}>"),
        (Risk, f"struct<country:string,score:double,price:decimal(10,2),places:array<{_PLACE}>>"),
    ],
)
def test_fields_become_columns(model: type, expected: str) -> None:
    """The fields of a dataclass, a TypedDict and a Pydantic model become columns with Spark types."""
    assert schema_of(model).simpleString() == expected


def test_only_optional_fields_are_nullable() -> None:
    """A column is nullable if its field is Optional, at any depth."""
    made = schema_of(Every)
    assert [field.name for field in made if field.nullable] == ["maybe"]
    assert made["tags"].dataType.containsNull  # type: ignore[attr-defined]
    assert [field.nullable for field in made["place"].dataType] == [False, True]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Unknown, r"output has 'Unknown.value' of type typing.Any; allowed: str, int, float"),
        (Both, r"output has 'Both.value' of type int \| str; allowed: "),
        (BareList, r"output has 'BareList.value' of type typing.List; allowed: .* list\[T\], dict\[K, V\]"),
        (BareDict, r"output has 'BareDict.value' of type typing.Dict; allowed: .* list\[T\], dict\[K, V\]"),
        (Tree, r"output has 'Tree.left', which contains itself"),
        (Missing, r"output Missing has an annotation that cannot be resolved \(name 'Nowhere' is not defined\)"),
        (int, r"output is <class 'int'>; allowed: column definitions such as .*Pydantic model"),
    ],
)
def test_other_types_are_rejected(model: type, message: str) -> None:
    """A field of an unsupported type is rejected, with its path, its type and the allowed types."""
    df: Any = type("DF", (), {"columns": []})()
    with pytest.raises(InvalidPlanError, match=message):
        output_of(df, model)
