"""Tests of source offsets: partitions and lag in Kafka's format, and offsets in any other format."""

from __future__ import annotations

import json

import pytest

from spark_events.translate.offsets import lag, offset_text, partitions


def raw(value: object, quoted: bool = False) -> bytes:
    """Return JSON as in a live progress or, with ``quoted``, a string that contains JSON, as in event logs."""
    text = json.dumps(value, separators=(",", ":"))
    return json.dumps(text).encode() if quoted else text.encode()


@pytest.mark.parametrize("quoted", [False, True])
def test_kafka_offsets_are_read_per_partition(quoted: bool) -> None:
    """Topics and partitions of Kafka's offsets are parsed from a progress and from an event log."""
    offsets = {"orders": {"0": 12, "11": 7}, "refunds-eu": {"0": 1}}
    assert partitions(raw(offsets, quoted)) == {"orders-0": 12, "orders-11": 7, "refunds-eu-0": 1}


@pytest.mark.parametrize(
    "value",
    [
        None,
        7,
        "text",
        [],
        {},
        {"logOffset": 4},
        {"shard": {"a": 1}},
        {"t": {"0": "12"}},
        {"t": {"0": 1}, "version": 3},
        {"sourceVersion": 1, "reservoirId": "x", "index": {"0": 1}},
    ],
)
def test_other_formats_have_no_partitions(value: object) -> None:
    """Offsets in formats that resemble Kafka's have neither partitions nor a lag."""
    assert partitions(raw(value)) == {}
    assert lag(raw(value), raw(value)) is None


@pytest.mark.parametrize("text", [b"", b"{", b'{"a":{', b"\xff\xfe", b'"\\ud800', b'{"t":{"0":1}} trailing'])
def test_an_offset_that_is_not_json_causes_no_error(text: bytes) -> None:
    assert partitions(text) == {}
    assert isinstance(offset_text(text), str)


def test_lag_is_the_unread_part() -> None:
    """The lag includes all partitions, even new ones, but not partitions that were reset to an earlier offset."""
    reached, available = raw({"t": {"0": 10, "1": 5}}), raw({"t": {"0": 15, "1": 2, "2": 3}})
    assert lag(reached, available) == 8


def test_lag_is_unknown_without_a_latest_offset() -> None:
    assert lag(raw({"t": {"0": 10}}), b"null") is None
