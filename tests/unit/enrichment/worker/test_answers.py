"""Tests of the conversion of answers to columns, and of messages about invalid answers, which contain no values."""

from __future__ import annotations

import collections
import datetime
import decimal
import math
import re
import uuid
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_events.enrichment.engine.failure import RowFailure
from spark_events.enrichment.worker import answers as answers_module
from spark_events.enrichment.worker.answers import AnswerWriter
from spark_events.enrichment.worker.type_checks import spark_name

SECRET = "hunter2"
UTC = datetime.timezone.utc


def written(answers: list[Any], *fields: Any) -> tuple[list[list[Any]], dict[int, str]]:
    arrays, failures = AnswerWriter(pa.schema(fields)).write(answers)
    return [array.to_pylist() for array in arrays], {row: failure.message for row, failure in failures.items()}


def test_answers_become_columns_in_the_output_s_order() -> None:
    columns, failures = written([{"b": 1, "a": "x"}, {"a": None, "b": 2}], ("a", pa.string()), ("b", pa.int64()))
    assert (columns, failures) == ([["x", None], [1, 2]], {})
    assert written([], ("a", pa.string())) == ([[]], {})


def test_a_row_that_failed_has_nulls_and_keeps_its_failure() -> None:
    failure = RowFailure("timeout", "TimeoutError", "no answer within 1 s", 3)
    arrays, failures = AnswerWriter(pa.schema([("a", pa.int64())])).write([{"a": 1}, failure, {"a": 3}])
    assert arrays[0].to_pylist() == [1, None, 3]
    assert failures == {1: failure}


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"a": 1}, "the function returned a mapping without 'b'"),
        ({"a": 1, "b": "x", "c": SECRET}, "the function returned a mapping with 'c', which the output does not have"),
        (
            {"a": 1, "B": "x"},
            "the function returned a mapping without 'b' and with 'B', which the output does not have",
        ),
        (None, "the function returned NoneType, not a mapping with a, b"),
        ([1, SECRET], "the function returned list, not a mapping with a, b"),
        ({"a": SECRET, "b": "x"}, "column 'a' is bigint, but the function returned str"),
        ({"a": 2**70, "b": "x"}, "column 'a' is bigint, but the function returned int that does not fit"),
        ({"a": True, "b": "x"}, "column 'a' is bigint, but the function returned bool that does not fit"),
        ({"a": 1, "b": 7}, "column 'b' is string, but the function returned int that does not fit"),
        ({"a": None, "b": "x"}, "column 'a' is NOT NULL, but the function returned None"),
        (
            {"a": 1, "b": "\udc80"},
            "column 'b' is string, but the function returned str with a lone surrogate, which UTF-8 cannot encode",
        ),
        (
            {"a": 1, "b": "x", "\udc80": 1},
            r"the function returned a mapping with '\udc80', which the output does not have",
        ),
    ],
)
def test_an_invalid_answer_fails_its_row(answer: Any, message: str) -> None:
    """The message about an invalid answer contains the column and type, but not the value, which may be a secret."""
    columns, failures = written(
        [{"a": 1, "b": "x"}, answer, {"a": 3, "b": "z"}], pa.field("a", pa.int64(), nullable=False), ("b", pa.string())
    )
    assert failures == {1: message}
    assert columns == [[1, None, 3], ["x", None, "z"]]
    assert SECRET not in message


class Expired(collections.UserDict[str, Any]):
    """User-defined mapping that no longer has values."""

    def __getitem__(self, key: str) -> Any:
        raise RuntimeError(SECRET)


class Unbendable:
    """User-defined value that raises an error in every conversion."""

    def __index__(self) -> int:
        raise RuntimeError(SECRET)

    __int__ = __float__ = __bool__ = __len__ = __str__ = __iter__ = __index__  # type: ignore[assignment]


@pytest.mark.parametrize("kind", [pa.int64(), pa.list_(pa.int32()), pa.string(), pa.struct([("a", pa.int64())])])
def test_a_value_that_contains_itself_fails_its_row(kind: pa.DataType) -> None:
    """A value that contains itself fails its row: Arrow would recurse without end and crash Python."""
    endless: list[Any] = []
    endless.append(endless)
    nested: dict[str, Any] = {}
    nested["a"] = nested
    columns, failures = written([{"a": None}, {"a": endless}, {"a": nested}], ("a", kind))
    assert columns == [[None] * 3]
    assert list(failures) == [1, 2]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Expired({"a": 1}), "the function returned Expired, whose values cannot be read: RuntimeError"),
        ({"a": Unbendable()}, "column 'a' is bigint, but the function returned Unbendable"),
    ],
    ids=["mapping", "value"],
)
def test_a_value_that_raises_fails_its_row(answer: Any, message: str) -> None:
    """If the conversion of a value raises, its row fails, but not the task.

    Spark would repeat all calls of a failed task.
    """
    columns, failures = written([{"a": 1}, answer, {"a": 3}], ("a", pa.int64()))
    assert columns == [[1, None, 3]]
    assert list(failures) == [1]
    assert message in failures[1]
    assert SECRET not in failures[1]


def test_timestamps_need_a_time_zone_and_local_times_have_no_time_zone() -> None:
    """Timestamps need a time zone, and local times must not have a time zone.

    Arrow would silently treat both as UTC.
    """
    aware, naive = datetime.datetime(2026, 1, 1, tzinfo=UTC), datetime.datetime(2026, 1, 1)
    moment, clock = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
    assert written([{"t": aware}], ("t", moment))[1] == {}
    assert written([{"t": naive}], ("t", clock))[1] == {}
    wrong = "column 't' is timestamp, but the function returned datetime without a time zone"
    assert written([{"t": naive}], ("t", moment))[1] == {0: wrong}
    wrong = "column 't' is timestamp_ntz, but the function returned datetime with a time zone"
    assert written([{"t": aware}], ("t", clock))[1] == {0: wrong}
    nested = pa.list_(pa.struct([("at", moment)]))
    assert written([{"t": [{"at": aware}, None]}], ("t", nested))[1] == {}
    assert list(written([{"t": [{"at": naive}]}], ("t", nested))[1]) == [0]


def test_an_invalid_value_in_a_late_column_clears_the_earlier_columns() -> None:
    """An invalid value in a later column clears the earlier columns: an answer is complete or missing."""
    columns, failures = written([{"a": 1, "b": "no"}, {"a": 2, "b": 2}], ("a", pa.int64()), ("b", pa.int64()))
    assert list(failures) == [0]
    assert columns == [[None, 2], [None, 2]]


_X = pa.struct([pa.field("x", pa.int32(), nullable=False), ("y", pa.string())])


@pytest.mark.parametrize(
    ("kind", "good", "bad", "path"),
    [
        (_X, {"x": 1, "y": None}, {"x": None, "y": SECRET}, "s.x"),
        (_X, None, {"y": SECRET}, "s.x"),
        (pa.list_(pa.field("element", pa.int32(), nullable=False)), [1], [1, None], "s.element"),
        (pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False)), {"a": 1}, {SECRET: None}, "s.value"),
        (pa.map_(_X, pa.int32()), [({"x": 1}, None)], [({"x": None}, 1)], "s.key.x"),
        (pa.list_(pa.map_(pa.string(), _X)), [None, {"a": None}], [{"a": {"x": None}}], "s.element.value.x"),
        (pa.struct([("in", pa.list_(_X))]), {"in": [None]}, {"in": [{"x": 1}, {"x": None}]}, "s.in.element.x"),
    ],
)
def test_a_null_in_a_non_nullable_nested_type_fails_its_row(kind: Any, good: Any, bad: Any, path: str) -> None:
    """A null in a non-nullable nested type, which Spark would reject, fails its row. A null column is accepted."""
    columns, failures = written([{"s": good}, {"s": bad}, {"s": None}], ("s", kind))
    assert failures == {1: f"column {path!r} is NOT NULL, but the function returned None"}
    assert columns == written([{"s": good}, {"s": None}, {"s": None}], ("s", kind))[0]


@pytest.mark.parametrize(
    ("kind", "bad", "given"),
    [
        (pa.list_(pa.string()), ["\ud800"], "list"),
        (pa.struct([("x", pa.string())]), {"x": "\ud800"}, "dict"),
        (pa.map_(pa.string(), pa.int32()), {"\ud800": 1}, "dict"),
    ],
)
def test_nested_text_that_is_not_utf_8_fails_its_row(kind: Any, bad: Any, given: str) -> None:
    columns, failures = written([{"s": bad}, {"s": None}], ("s", kind))
    assert failures == {0: f"column 's' is {spark_name(kind)}, but the function returned {given}"}
    assert columns == [[None, None]]


_HUGE = 1e300
_NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "bad", "field", "given"),
    [
        (pa.int32(), 1.7, "'s' is int", "float"),
        (pa.int64(), -2.0, "'s' is bigint", "float"),
        (pa.int64(), np.float32(1.5), "'s' is bigint", "float32"),
        (pa.int64(), decimal.Decimal("3.7"), "'s' is bigint", "Decimal"),
        (pa.list_(pa.int32()), [1, None, 1.5], "'s.element' is int", "float"),
        (pa.list_(pa.int32()), np.array([1.5]), "'s.element' is int", "float64"),
        (pa.list_(pa.string()), SECRET, "'s' is array<string>", "str"),
        (pa.list_(pa.string()), {"a": 1}, "'s' is array<string>", "dict"),
        (pa.map_(pa.string(), pa.string()), ["de", "fr"], "'s' is map<string,string>", "list"),
        (pa.list_(pa.list_(pa.binary())), [[b"a"], b"a"], "'s.element' is array<binary>", "bytes"),
        (pa.map_(pa.string(), pa.int32()), {"a": 1.5}, "'s.value' is int", "float"),
        (pa.map_(pa.int32(), pa.string()), [(1.5, "a")], "'s.key' is int", "float"),
        (pa.struct([("x", pa.int32())]), {"x": 1.5}, "'s.x' is int", "float"),
        (pa.struct([("x", pa.int32())]), (1.5,), "'s.x' is int", "float"),
        (pa.float32(), _HUGE, "'s' is float", "float"),
        (pa.list_(pa.float32()), [1.0, -_HUGE], "'s.element' is float", "float"),
        (pa.date32(), _NOON, "'s' is date", "datetime with a time zone"),
        (pa.date32(), 20_000, "'s' is date", "int"),
        (pa.duration("us"), 1.5, "'s' is interval day to second", "float"),
        (pa.date32(), np.int64(20200101), "'s' is date", "int64"),
        (pa.date32(), np.float32(1.5), "'s' is date", "float32"),
        (pa.date32(), uuid.UUID(int=1), "'s' is date", "UUID"),
        (pa.date32(), decimal.Decimal(1), "'s' is date", "Decimal"),
        (pa.duration("us"), np.int64(1), "'s' is interval day to second", "int64"),
        (pa.duration("us"), uuid.UUID(int=1), "'s' is interval day to second", "UUID"),
        (pa.float64(), True, "'s' is double", "bool"),
        (pa.float32(), True, "'s' is float", "bool"),
        (pa.decimal128(10, 2), True, "'s' is decimal(10,2)", "bool"),
        (pa.list_(pa.float64()), [1.5, False], "'s.element' is double", "bool"),
        (pa.string(), b"a", "'s' is string", "bytes"),
        (pa.string(), bytearray(b"a"), "'s' is string", "bytearray"),
        (pa.list_(pa.string()), ["a", b"a"], "'s.element' is string", "bytes"),
        (pa.map_(pa.string(), pa.string()), {b"a": "a"}, "'s.key' is string", "bytes"),
        (pa.binary(), SECRET, "'s' is binary", "str"),
        (pa.struct([("x", pa.binary())]), {"x": SECRET}, "'s.x' is binary", "str"),
        (
            pa.map_(pa.string(), pa.int32()), [(SECRET, 1), ("b", 2), (SECRET, 3)],
            "'s' is map<string,int>", "list with a duplicate key",
        ),
        (
            pa.list_(pa.map_(pa.float64(), pa.int32())), [{1.5: 1}, ((math.nan, 1), (float("nan"), 2))],
            "'s.element' is map<double,int>", "tuple with a duplicate key",
        ),
        (
            pa.map_(pa.struct([("x", pa.int32())]), pa.int32()), [({"x": 1}, 1), ({"x": 1}, 2)],
            f"'s' is {spark_name(pa.map_(pa.struct([('x', pa.int32())]), pa.int32()))}", "list with a duplicate key",
        ),
        (
            pa.map_(pa.string(), pa.struct([("x", pa.int32())])), [["a", {"x": 1}]],
            f"'s' is {spark_name(pa.map_(pa.string(), pa.struct([('x', pa.int32())])))}", "list",
        ),
        (
            pa.struct([("x", pa.int32())]), {"x": 1, "z": SECRET},
            "'s' is struct<x:int>", "a mapping with 'z', which it does not have",
        ),
        (pa.struct([("x", pa.int32())]), [("x", 1)], "'s' is struct<x:int>", "list"),
    ],
)  # fmt: skip
def test_no_value_is_converted_with_loss(kind: Any, bad: Any, field: str, given: str) -> None:
    """Lossy conversions are rejected.

    Arrow would truncate fractions and times, let numbers overflow and drop fields.
    """
    columns, failures = written([{"s": None}, {"s": bad}, {"s": None}], ("s", kind))
    assert list(failures) == [1]
    assert failures[1].removesuffix(" that does not fit") == f"column {field}, but the function returned {given}"
    assert columns == [[None, None, None]]
    found = AnswerWriter(pa.schema([("s", kind)])).misfit({"s": bad})
    assert found is not None
    assert found.message == failures[1]


@pytest.mark.parametrize(
    ("kind", "value", "kept"),
    [
        (pa.int32(), np.int64(3), 3),
        (pa.int64(), np.uint8(3), 3),
        (pa.float64(), np.float32(1.5), 1.5),
        (pa.float64(), 3, 3.0),
        (pa.float32(), np.float64(1.5), 1.5),
        (pa.float32(), -math.inf, -math.inf),
        (pa.list_(pa.int32()), (1, np.int32(2), None), [1, 2, None]),
        (pa.list_(pa.int32()), np.array([1, 2]), [1, 2]),
        (pa.list_(pa.float32()), np.array([1.5, 2], "float32"), [1.5, 2.0]),
        (pa.list_(pa.float32()), [None, 1, 2.5], [None, 1.0, 2.5]),
        (pa.map_(pa.string(), pa.int32()), {"a": 1, "b": None}, [("a", 1), ("b", None)]),
        (pa.map_(pa.string(), pa.int32()), [("a", 1)], [("a", 1)]),
        (pa.struct([("x", pa.int32()), ("y", pa.string())]), {"y": "a"}, {"x": None, "y": "a"}),
        (pa.struct([("x", pa.int32()), ("y", pa.string())]), (1, "a"), {"x": 1, "y": "a"}),
        (pa.date32(), datetime.date(2026, 1, 1), datetime.date(2026, 1, 1)),
        (pa.duration("us"), datetime.timedelta(1), datetime.timedelta(1)),
        (
            pa.map_(pa.struct([("x", pa.int32())]), pa.int32()),
            [({"x": 1}, 1), ({"x": 2}, 1)],
            [({"x": 1}, 1), ({"x": 2}, 1)],
        ),
        (pa.string(), np.str_("a"), "a"),
        (pa.binary(), bytearray(b"a"), b"a"),
        (pa.list_(pa.string()), np.array(["a"]), ["a"]),
        (pa.bool_(), np.bool_(True), True),
    ],
)
def test_valid_values_are_kept_unchanged(kind: Any, value: Any, kept: Any) -> None:
    """Valid values do not change. NumPy numbers are accepted like Python numbers."""
    assert written([{"s": value}, {"s": None}], ("s", kind)) == ([[kept, None]], {})
    assert AnswerWriter(pa.schema([("s", kind)])).misfit({"s": value}) is None


_PAIR = pa.struct([("x", pa.int32()), ("y", pa.string())])


@pytest.mark.parametrize(
    ("kind", "values", "kept"),
    [
        (_PAIR, [{"x": 1}, (2, "b"), None], [{"x": 1, "y": None}, {"x": 2, "y": "b"}, None]),
        (_PAIR, [(2, "b"), {"y": "a"}], [{"x": 2, "y": "b"}, {"x": None, "y": "a"}]),
        (
            pa.list_(_PAIR),
            [[{"x": 1, "y": "a"}, (2, "b")], ((3, "c"), None)],
            [[{"x": 1, "y": "a"}, {"x": 2, "y": "b"}], [{"x": 3, "y": "c"}, None]],
        ),
        (pa.map_(_PAIR, _PAIR), [{(1, "a"): {"x": 2}}], [[({"x": 1, "y": "a"}, {"x": 2, "y": None})]]),
        (
            pa.struct([("s", _PAIR), ("t", pa.map_(pa.string(), _PAIR))]),
            [{"s": (1, "a")}, ({"x": 2}, [("k", (3, "c"))])],
            [
                {"s": {"x": 1, "y": "a"}, "t": None},
                {"s": {"x": 2, "y": None}, "t": [("k", {"x": 3, "y": "c"})]},
            ],
        ),
    ],
)
def test_structs_of_one_column_may_be_tuples_and_dictionaries(kind: Any, values: list[Any], kept: list[Any]) -> None:
    """Structs of one column may be tuples and dictionaries, although Arrow accepts only one form per array."""
    answers = [{"s": value} for value in values]
    assert written(answers, ("s", kind)) == ([kept], {})
    wrong = "column 's' is .*, but the function returned str"
    columns, failures = written([*answers, {"s": "x"}, {"s": iter([1])}], ("s", kind))
    assert columns == [[*kept, None, None]]
    assert sorted(failures) == [len(kept), len(kept) + 1]
    assert re.match(wrong, failures[len(kept)])


@pytest.mark.parametrize(
    ("kind", "fits", "misfits"),
    [
        (pa.int8(), [127, -128, None], [128, True, 1.0]),
        (pa.int64(), [2**63 - 1], [2**63]),
        (pa.float64(), [0.5, math.nan], ["0.5"]),
        (pa.bool_(), [True], [1]),
        (pa.string(), ["é"], ["\ud800", b"a"]),
        (pa.binary(), [b"a"], ["a"]),
        (pa.list_(pa.float64()), [[0.5, None], []], [[True], "ab"]),
        (pa.list_(pa.list_(pa.int32())), [[[1], None]], [[[2**31]]]),
    ],
)
def test_a_simple_answer_is_checked_without_an_array(
    kind: pa.DataType, fits: list[Any], misfits: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A simple answer is checked without an Arrow array, because building an array between two calls takes too long."""
    one = AnswerWriter(pa.schema([("s", kind)]))
    assert [one.misfit({"s": value}) for value in misfits].count(None) == 0
    assert one.misfit({}) is not None
    assert one.misfit({"s": fits[0], "t": 1}) is not None
    assert one.misfit([fits[0]]) is not None
    monkeypatch.setattr(one, "write", lambda answers: pytest.fail("an array was made"))
    assert [one.misfit({"s": value}) for value in fits] == [None] * len(fits)


def test_a_simple_answer_needs_every_required_column() -> None:
    """An answer needs every required column. None is a valid value of a nullable column."""
    one = AnswerWriter(pa.schema([pa.field("s", pa.int32(), nullable=False)]))
    assert one.misfit({"s": 1}) is None
    assert one.misfit({"s": None}) is not None


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.int64()),
        pa.list_(pa.struct([("a", pa.int64())])),
        pa.map_(pa.string(), pa.int64()),
        pa.map_(pa.string(), pa.struct([("a", pa.int64())])),
    ],
    ids=str,
)
def test_an_iterator_fails_its_row(kind: pa.DataType) -> None:
    """An iterator can be read only once. If it were accepted, the column would lose its values."""
    columns, failures = written([{"x": iter([("a", 1)])}], pa.field("x", kind))
    assert columns == [[None]]
    assert "the function returned list_iterator" in failures[0]


def test_nan_is_valid_for_32_bit_floats() -> None:
    """NaN is valid for a 32-bit float, but finite numbers must not become infinite."""
    ((nan,),), failures = written([{"s": math.nan}], ("s", pa.float32()))
    assert failures == {}
    assert math.isnan(nan)


def _in_parts(
    writer: AnswerWriter, answers: list[Any], mean: float | None
) -> list[tuple[int, list[Any], dict[int, str]]]:
    parts = list(writer.parts(answers, mean))
    return [(start, arrays[0].to_pylist(), {r: f.type for r, f in failed.items()}) for start, arrays, failed in parts]


@pytest.mark.parametrize("mean", [None, 1.0, 300.0], ids=str)
def test_large_answers_are_split_into_parts(mean: float | None) -> None:
    """Large answers are split into parts within the limit, or of one row. Converted answers are freed at once."""
    texts = ["x" * size for size in (100, 100, 100, 5_000, 100, 1, 1, 1, 1)]
    answers: list[Any] = [{"a": text} for text in texts]
    answers[6] = RowFailure("error", "E", "")
    parts = _in_parts(AnswerWriter(pa.schema([("a", pa.string())]), most_bytes=300), answers, mean)
    assert [text for _, column, _ in parts for text in column] == [*texts[:6], None, *texts[7:]]
    assert [start for start, _, _ in parts] == [sum(len(c) for _, c, _ in parts[:i]) for i in range(len(parts))]
    assert {start + row: kind for start, _, failed in parts for row, kind in failed.items()} == {6: "E"}
    assert all(len(column) == 1 or sum(len(text or "") for text in column) <= 300 for _, column, _ in parts)
    assert len(parts) > 3
    assert answers == [None] * 9


def test_small_answers_are_one_part() -> None:
    """Small answers form one part, and so does an empty list of answers."""
    writer = AnswerWriter(pa.schema([("a", pa.string())]))
    assert _in_parts(writer, [{"a": "x"}, {"a": "y"}], 50.0) == [(0, ["x", "y"], {})]
    assert _in_parts(writer, [], None) == [(0, [], {})]


@pytest.mark.parametrize("kind", ["chunked", "raised"])
def test_data_beyond_the_array_limit_is_split(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data beyond Arrow's limit of 2 GiB per array is split: pyarrow would return several arrays or raise an error."""

    def of(values: Any, type_: pa.DataType) -> Any:
        if len(values) <= 3:
            return pa.array(values, type_)
        if kind == "chunked":
            return pa.chunked_array([values[:3], values[3:]], type_)
        raise pa.ArrowCapacityError("cannot contain more than 2147483646 bytes")

    class Small:
        array = staticmethod(of)

        def __getattr__(self, name: str) -> Any:
            return getattr(pa, name)

    monkeypatch.setattr(answers_module, "pa", Small())
    writer = AnswerWriter(pa.schema([("a", pa.string())]))
    answers: list[Any] = [{"a": str(row)} for row in range(10)]
    with pytest.raises(pa.ArrowCapacityError):
        writer.write(answers)
    parts = _in_parts(writer, answers, None)
    assert [text for _, column, _ in parts for text in column] == [str(row) for row in range(10)]
    assert max(len(column) for _, column, _ in parts) <= 3
