"""Offsets: whatever JSON a source makes them, and what can be read out of the forms that are known."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["lag", "offset_text", "partitions"]

_LIMIT = 2_048


def offset_text(raw: bytes | msgspec.Raw) -> str | None:
    """An offset as the text that stands in the checkpoint: JSON, unless it is a string by itself.

    Spark's own progress JSON has it as JSON, its event log as a string with JSON in it.
    """
    text = _unwrapped(bytes(raw))
    if text == "null":
        return None
    return text if len(text) <= _LIMIT else f"{text[:_LIMIT]}... [{len(text) - _LIMIT} cut]"


def partitions(raw: bytes | msgspec.Raw) -> dict[str, int]:
    """Offsets by partition, where they are in Kafka's form: ``{"topic": {"0": 12, "1": 7}}``.

    Returns:
        ``{"topic-0": 12, "topic-1": 7}``; nothing for offsets of another form.
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
    """How many rows the source still has, where its offsets are per partition; None where not told."""
    reached, available = partitions(end), partitions(latest)
    if not available:
        return None
    return sum(max(0, offset - reached.get(partition, 0)) for partition, offset in available.items())


def _unwrapped(raw: bytes) -> str:
    if raw.startswith(b'"'):
        try:
            return str(msgspec.json.decode(raw))
        except msgspec.DecodeError:
            pass
    return raw.decode("utf-8", "replace")
