"""Offsets of streaming sources: arbitrary JSON, and the formats that this module understands."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["lag", "lags", "offset_text", "partitions"]

_LIMIT = 2_048


def offset_text(raw: bytes | msgspec.Raw) -> str | None:
    """Return an offset as the checkpoint contains it: JSON, or the content of a JSON string.

    In Spark's progress JSON, an offset is a JSON value; in the event log, an offset is a string that contains JSON.
    """
    text = _unwrapped(bytes(raw))
    if text == "null":
        return None
    return text if len(text) <= _LIMIT else f"{text[:_LIMIT]}... [{len(text) - _LIMIT} cut]"


def partitions(raw: bytes | msgspec.Raw) -> dict[str, int]:
    """Return offsets by partition, for Kafka's format ``{"topic": {"0": 12, "1": 7}}``.

    Returns:
        ``{"topic-0": 12, "topic-1": 7}``; empty for offsets in another format.
    """
    text = _unwrapped(bytes(raw))
    if not text.startswith("{") or ":{" not in text.replace(" ", ""):
        return {}
    try:
        value: Any = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return {}
    found: dict[str, int] = {}
    for topic, offsets in value.items():
        if not isinstance(offsets, dict):
            return {}
        for partition, offset in offsets.items():
            if not isinstance(offset, int) or not partition.isdecimal():
                return {}
            found[f"{topic}-{partition}"] = offset
    return found


def lag(end: bytes | msgspec.Raw, latest: bytes | msgspec.Raw) -> int | None:
    """Return the number of unread rows of a source; None for offsets without partitions."""
    reached, available = partitions(end), partitions(latest)
    if not available:
        return None
    return sum(max(0, offset - reached.get(partition, 0)) for partition, offset in available.items())


def lags(end: bytes | msgspec.Raw, latest: bytes | msgspec.Raw) -> dict[str, int]:
    """Return the number of unread rows of a source, by topic.

    If the offset is a single number, the key is ``""``.
    """
    reached, available = partitions(end), partitions(latest)
    found: dict[str, int] = {}
    for partition, offset in available.items():
        topic = partition.rpartition("-")[0]
        found[topic] = found.get(topic, 0) + max(0, offset - reached.get(partition, 0))
    here, newest = _unwrapped(bytes(end)), _unwrapped(bytes(latest))
    if here.isdecimal() and newest.isdecimal() and max(len(here), len(newest)) < 19:
        found[""] = max(0, int(newest) - int(here))
    return found


def _unwrapped(raw: bytes) -> str:
    if raw.startswith(b'"'):
        try:
            return str(msgspec.json.decode(raw))
        except msgspec.DecodeError:
            pass
    return raw.decode("utf-8", "replace")
