"""Tests of the conversion of Arrow data to rows, and of the keys that identify rows."""

from __future__ import annotations

import datetime
import decimal
import math
import random
from typing import Any

import pyarrow as pa
import pytest

from spark_events.enrichment.worker.answers import AnswerWriter
from spark_events.enrichment.worker.rows import RowReader, idempotency_keys
from spark_events.enrichment.worker.values import hashable, identities_of, values_of

NUMBERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()]


@pytest.mark.parametrize("kind", NUMBERS, ids=str)
@pytest.mark.parametrize("nulls", [False, True])
def test_numbers_equal_arrow_s(kind: pa.DataType, nulls: bool) -> None:
    """Numbers from arrays, slices and empty arrays equal the numbers that Arrow itself converts."""
    values: list[Any] = [random.Random(1).randint(-100, 100) for _ in range(50)] + ([None] if nulls else [])
    array = pa.array(values, kind)
    for part in (array, array.slice(7, 20), array.slice(50), array.slice(3, 0), pa.array([], kind)):
        assert values_of(part) == part.to_pylist()
        assert all(type(a) is type(b) for a, b in zip(values_of(part), part.to_pylist(), strict=True))


def test_maps_are_dictionaries_at_any_depth() -> None:
    inner = pa.map_(pa.string(), pa.int64())
    kind = pa.struct([("l", pa.list_(inner)), ("m", pa.map_(pa.string(), inner)), ("s", pa.string())])
    values: list[dict[str, Any] | None] = [
        {"l": [{"a": 1}, None], "m": {"x": {"b": 2}, "y": None}, "s": "t"},
        None,
        {"l": None, "m": {}, "s": None},
    ]
    assert values_of(pa.array(values, kind)) == values


def test_maps_with_unhashable_keys_are_pairs() -> None:
    """At any depth, maps with unhashable keys become lists of pairs, which are returned unchanged and identify rows."""
    inner = pa.map_(pa.string(), pa.int64())
    structs = pa.map_(pa.struct([("x", pa.int64())]), inner)
    kind = pa.struct([("s", structs), ("l", pa.list_(pa.map_(pa.list_(pa.int64()), pa.int64())))])
    values = [
        {"s": [({"x": 1}, {"a": 1}), ({"x": 2}, None)], "l": [[([1, 2], 3)], None]},
        {"s": [({"x": 1}, {"a": 1}), ({"x": 3}, None)], "l": []},
        None,
    ]
    array = pa.array(values, kind)
    assert values_of(array) == values
    assert AnswerWriter(pa.schema([("v", kind)])).write([{"v": value} for value in values]) == ([array], {})
    assert len({*map(hashable, values_of(array))}) == 3
    batch = pa.RecordBatch.from_arrays([array], names=["v"])
    assert len({idempotency_keys("", ["v"], batch)(row) for row in range(3)}) == 3


def test_columns_are_accessible_by_attribute_key_and_position() -> None:
    """Columns are accessible by key and by position. If the name is an identifier, the column is also an attribute."""
    batch = pa.RecordBatch.from_pydict({"id": [1, 2], "a b": ["x", None], "class": [1.5, 2.5], "other": [0, 0]})
    (first, second), failures = RowReader(["class", "id", "a b"]).read(batch)
    assert failures == {}
    assert (first.id, first["id"], first[1]) == (1, 1, 1)
    assert (first["a b"], first["class"]) == ("x", 1.5)
    assert second.asDict() == {"class": 2.5, "id": 2, "a b": None}
    assert tuple(second) == (2.5, 2, None)
    with pytest.raises(AttributeError, match="no column 'other'; the function receives: class, id, a b"):
        _ = second.other
    with pytest.raises(AttributeError, match=r"no column 'get'; .*; a row is a tuple, and row\.asDict\(\) is a dict"):
        first.get("id")
    with pytest.raises(KeyError, match="no column 'other'; the function receives: class, id, a b"):
        first["other"]
    assert [tuple(row) for row in RowReader([]).read(batch)[0]] == [(), ()]


@pytest.mark.parametrize(
    "names",
    [["_1"], ["_1", "_2"], ["_1", "_2", "_3"], ["_2", "_1"], ["a b", "_0", "_c0"], ["_id", "id", "_corrupt_record"]],
    ids=str,
)
def test_a_name_with_a_leading_underscore_is_accessible(names: list[str]) -> None:
    """A name with a leading underscore, as Spark and namedtuple generate, is accessible as an attribute."""
    batch = pa.RecordBatch.from_pydict({name: [f"value of {name}"] for name in names})
    (row,), _ = RowReader(names).read(batch)
    for index, name in enumerate(names):
        assert row[name] == row[index] == f"value of {name}"
        if name.isidentifier():
            assert getattr(row, name) == f"value of {name}"
    for other in {"_0", "_1", "_2", "_3"} - set(names):
        assert not hasattr(row, other)


def test_a_column_named_like_a_tuple_method_is_accessible_by_key() -> None:
    values = {"__class__": "x", "__qualname__": "q", "__classcell__": 1, "__del__": 2, "_fields": "y", "count": 3}
    batch = pa.RecordBatch.from_pydict({name: [value] for name, value in values.items()})
    (row,), _ = RowReader(list(values)).read(batch)
    assert (row["__class__"], row["__del__"], row["_fields"], row.count) == ("x", 2, "y", 3)
    assert row.asDict() == values
    assert isinstance(row, tuple)


def test_equal_values_have_equal_hashable_forms() -> None:
    """Equal values have equal hashable forms; lists and dictionaries themselves cannot be keys."""
    assert hash(hashable({"a": [1, {"b": 2}]})) == hash(hashable({"a": [1, {"b": 2}]}))
    assert hashable([1, [2]]) != hashable([1, [3]])


def test_floats_are_equal_as_in_spark() -> None:
    """Floats are compared as in Spark: NaN equals NaN, although each NaN from Arrow is a new object."""
    found = values_of(pa.array([math.nan, -0.0]))
    also = values_of(pa.array([math.nan, 0.0]))
    assert {hashable((found[0], [1])): "found"}[hashable((also[0], [1]))] == "found"
    assert hashable(found[1]) == hashable(also[1])


def test_times_with_the_same_local_time_are_not_equal() -> None:
    """Two times with the same local time differ if the clocks were set back between these times."""
    half_past_one = pa.array([1_730_611_800, 1_730_615_400], pa.timestamp("s", "America/New_York"))
    first, second = values_of(half_past_one.cast(pa.timestamp("us", "America/New_York")))
    assert first.replace(tzinfo=None, fold=0) == second.replace(tzinfo=None, fold=0)
    assert hashable(first) != hashable(second)
    assert hashable((1, {"at": first})) != hashable((1, {"at": second}))


def test_the_key_of_a_row_depends_on_batch_and_content() -> None:
    """The key of a row depends on the batch and the content of the row, not on its position."""
    zone = datetime.timezone(datetime.timedelta(hours=2))
    moment = datetime.datetime(2026, 1, 31, 14, tzinfo=zone)
    values = {
        "t": [moment, moment], "x": [decimal.Decimal("1.50")] * 2, "m": [{"a": 1}] * 2, "n": [1, 2], "b": [b"\x00"] * 2,
    }  # fmt: skip
    fields = [
        ("t", pa.timestamp("us", tz="Europe/Berlin")), ("x", pa.decimal128(10, 2)),
        ("m", pa.map_(pa.string(), pa.int64())), ("n", pa.int64()), ("b", pa.binary()),
    ]  # fmt: skip
    batch = pa.RecordBatch.from_pydict(values, schema=pa.schema(fields))
    key = idempotency_keys("q/1", batch.schema.names, batch)
    assert key(0) != key(1)
    assert idempotency_keys("q/1", batch.schema.names, batch.slice(1))(0) == key(1)
    assert idempotency_keys("q/2", batch.schema.names, batch)(0) != key(0)
    elsewhere = batch.set_column(0, "t", batch.column(0).cast(pa.timestamp("us", tz="UTC")))
    assert idempotency_keys("q/1", batch.schema.names, elsewhere)(0) == key(0)
    assert idempotency_keys("q/1", ["n"], batch)(0) == idempotency_keys("q/1", ["n"], batch.select(["n"]))(0)


def test_similar_values_have_different_keys() -> None:
    """Similar values have different keys: the string 1 differs from the number 1, and separators cause no collision."""
    keys = set()
    for values in (
        [1, "2"],
        ["1", "2"],
        ["1,2", ""],
        ["1\x1f2", ""],
        [None, "2"],
        ["None", "2"],
        [b"1", "2"],
        [True, "2"],
    ):
        batch = pa.RecordBatch.from_arrays([pa.array([value]) for value in values], names=["a", "b"])
        keys.add(idempotency_keys("", ["a", "b"], batch)(0))
    assert len(keys) == 8


def test_the_key_of_a_text_does_not_depend_on_the_python_version() -> None:
    """A string's key is the same in all Python versions, although repr() in newer versions prints more characters."""
    texts = ["plain", "it's", '"quoted"', "\\n", "\n", "\x1f", "é", "\u0301", "\U0001fae8", "\\U0001fae8", "\ufffe"]
    batch = pa.RecordBatch.from_arrays([pa.array(texts)], names=["a"])
    keys = list(map(idempotency_keys("q", ["a"], batch), range(len(texts))))
    assert len(set(keys)) == len(texts)
    assert keys[texts.index("\U0001fae8")] == "66fe97907d18c3b805fdae0284b9cf7e"


#: The end of the year 9999 in New York, which is in the year 10000 in UTC, beyond Python's calendar.
BEYOND = 253_402_318_799_000_000


def _moments(*micros: int | None) -> pa.Array:
    return pa.array(micros, pa.int64()).cast(pa.timestamp("us", "America/New_York"))


def test_a_value_that_python_cannot_represent_fails_its_row() -> None:
    """The message about a value that Python cannot represent contains the column and type, but not the value."""
    days = pa.array([None, 0, 2**30], pa.int32()).cast(pa.date32())
    texts = pa.StringArray.from_buffers(3, pa.array([0, 1, 3, 4], pa.int32()).buffers()[1], pa.py_buffer(b"a\xff\xfeb"))
    batch = pa.RecordBatch.from_arrays([_moments(0, 1, 2), texts, days], names=["at", "text", "day"])
    rows, failures = RowReader(["at", "text", "day"]).read(batch)
    assert [row.text for row in rows] == ["a", None, "b"]
    assert [row.day for row in rows] == [None, datetime.date(1970, 1, 1), None]
    assert {row: (failure.kind, failure.type, failure.message) for row, failure in failures.items()} == {
        1: ("error", "UnicodeDecodeError", "column 'text' (string) has a value that Python "
            "cannot represent; allowed: text in UTF-8"),
        2: ("error", "OverflowError", "column 'day' (date) has a value that Python cannot represent; "
            "allowed: timestamps and dates of the years 1 to 9999, in UTC and in their time zone"),
    }  # fmt: skip
    nested = pa.StructArray.from_arrays([_moments(0, BEYOND)], names=["at"])
    rows, failures = RowReader(["s"]).read(pa.RecordBatch.from_arrays([nested], names=["s"]))
    assert (rows[0].s["at"].year, rows[1].s, list(failures)) == (1969, None, [1])


def test_values_that_python_cannot_represent_identify_rows() -> None:
    """Values that Python cannot represent identify rows at any depth. The keys of all other values do not change."""
    kind = pa.map_(
        pa.string(), pa.list_(pa.struct([("at", pa.timestamp("us", "America/New_York")), ("s", pa.string())]))
    )
    bare = pa.map_(pa.string(), pa.list_(pa.struct([("at", pa.int64()), ("s", pa.string())])))
    deep = pa.array([[("a", [{"at": moment, "s": "x"}])] for moment in (0, BEYOND, BEYOND + 1, BEYOND)], bare).cast(
        kind
    )
    plain = _moments(0, BEYOND, BEYOND + 1, BEYOND)
    keys: set[str] = set()
    for array in (plain, deep):
        batch = pa.RecordBatch.from_arrays([array], names=["a"])
        key = idempotency_keys("q", ["a"], batch)
        assert key(1) == key(3) == idempotency_keys("q", ["a"], batch.slice(1))(0)
        keys.update(map(key, range(3)))
        (values,) = identities_of(batch, ["a"])
        assert [hashable(value) for value in values].index(hashable(values[3])) == 1
    assert len(keys) == 6
    first = pa.RecordBatch.from_arrays([plain, pa.array([1, 2, 3, 4])], names=["a", "b"])
    assert idempotency_keys("q", ["a", "b"], first)(0) == "db2e399840ba8c187f1bc0956dab6d41"
    elsewhere = first.set_column(0, "a", plain.cast(pa.timestamp("us", "UTC")))
    for row in range(4):
        assert idempotency_keys("q", ["a"], first)(row) == idempotency_keys("q", ["a"], elsewhere)(row)


#: Time zones of Java, with the hours of the offset that Python uses: 0 if Python does not know the zone.
ZONES = {"GMT+5": 0, "UTC+01:00": 0, "UT-3": 0, "+05:30": 5.5, "Z": 0, "UTC": 0, "+01:00:30": 0, "PST": 0}


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("deep", [False, True])
def test_zones_unknown_to_python_fail_no_row_and_change_no_key(zone: str, deep: bool) -> None:
    """A time zone unknown to Python fails no row and changes no key: the values are in UTC."""
    moments = [1_769_860_800_123_456, 0, None]

    def batch_in(zone: str) -> pa.RecordBatch:
        array = pa.array(moments, pa.int64()).cast(pa.timestamp("us", zone))
        if deep:
            pairs = pa.MapArray.from_arrays([0, 1, 2, 3], pa.array(["a"] * 3), array)
            array = pa.ListArray.from_arrays([0, 1, 2, 3], pa.StructArray.from_arrays([pairs], names=["m"]))
        return pa.RecordBatch.from_arrays([array], names=["t"])

    batch = batch_in(zone)
    rows, failures = RowReader(["t"]).read(batch)
    assert failures == {}
    read = [row.t[0]["m"]["a"] if deep else row.t for row in rows]
    assert [None if at is None else at.timestamp() for at in read] == [1_769_860_800.123456, 0, None]
    assert read[0].utcoffset() == datetime.timedelta(hours=ZONES[zone])
    assert read[0].microsecond == 123_456
    elsewhere = idempotency_keys("q", ["t"], batch_in("UTC"))
    assert [idempotency_keys("q", ["t"], batch)(row) for row in range(3)] == list(map(elsewhere, range(3)))
    equal = zip(*identities_of(batch, ["t"]), *identities_of(batch_in("America/New_York"), ["t"]), strict=True)
    assert all(hashable(one) == hashable(other) for one, other in equal)


def test_zones_known_to_python_are_kept() -> None:
    """Timestamps keep the name and the daylight saving time of their time zone."""
    (row,), _ = RowReader(["at"]).read(pa.RecordBatch.from_arrays([_moments(0)], names=["at"]))
    assert str(row.at.tzinfo) == "America/New_York"
