"""Keys and encoding of answers in a shared cache.

The format is msgpack with the types of the output, so that no data from the cache is unpickled.
"""

from __future__ import annotations

import datetime
import decimal
import hashlib
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import pyarrow as pa

from spark_events.enrichment.worker.rows import canonical

__all__ = ["AnswerCodec"]

_Turn = Callable[[Any], Any]


class AnswerCodec:
    """Conversion of the answers of one output to msgpack, and back.

    Args:
        schema: the output.
        misfit: returns why an answer does not fit the output, or None.

    Raises:
        ImportError: when msgspec is not installed.
    """

    def __init__(self, schema: pa.Schema, misfit: Callable[[Any], object]) -> None:
        try:
            import msgspec
        except ImportError as error:
            raise ImportError("a shared cache needs msgspec: pip install 'spark-events[redis]'") from error
        self._names = schema.names
        self._turns = [_turn(field.type) for field in schema]
        types: Any = tuple[tuple(_python(field.type) for field in schema)]  # type: ignore[misc]
        self._encoder = msgspec.msgpack.Encoder(enc_hook=_item)
        self._decoder = msgspec.msgpack.Decoder(types)
        self._misfit = misfit

    def key(self, request: Hashable) -> str:
        """Return the digest of a request."""
        return hashlib.blake2b(canonical(request).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()

    def encode(self, answer: Mapping[str, Any]) -> bytes:
        """Return the answer as an array of its columns."""
        values = [turn(answer[name]) for name, turn in zip(self._names, self._turns, strict=True)]
        return bytes(self._encoder.encode(values))

    def decode(self, data: bytes) -> dict[str, Any]:
        """Return the answer.

        Raises:
            ValueError: when the bytes are not an answer that fits the output.
        """
        answer = dict(zip(self._names, self._decoder.decode(data), strict=True))
        if self._misfit(answer) is not None:
            raise ValueError("the answer does not fit the output")
        return answer


def _python(kind: pa.DataType) -> Any:
    """Return the Python type of the values of an Arrow type, as a union with None."""
    if pa.types.is_struct(kind):
        made: Any = tuple[tuple(_python(field.type) for field in kind)]  # type: ignore[misc]
    elif pa.types.is_map(kind):
        made = list[tuple[_python(kind.key_type), _python(kind.item_type)]]  # type: ignore[misc]
    elif pa.types.is_list(kind):
        made = list[_python(kind.value_type)]  # type: ignore[misc]
    else:
        made = next(python for is_it, python in _PLAIN if is_it(kind))
    return made | None


_PLAIN: list[tuple[Callable[[pa.DataType], bool], Any]] = [
    (pa.types.is_boolean, bool),
    (pa.types.is_integer, int),
    (pa.types.is_floating, float),
    (pa.types.is_decimal, decimal.Decimal),
    (pa.types.is_string, str),
    (pa.types.is_binary, bytes),
    (pa.types.is_timestamp, datetime.datetime),
    (pa.types.is_date, datetime.date),
    (pa.types.is_duration, datetime.timedelta),
    (pa.types.is_null, type(None)),
]


def _turn(kind: pa.DataType) -> _Turn:
    """Return a function that replaces structs with tuples and maps with pairs, the types that `_python` returns."""
    if pa.types.is_struct(kind):
        turns = {field.name: _turn(field.type) for field in kind}
        return lambda value: None if value is None else _tuple_of(turns, value)
    if pa.types.is_map(kind):
        key, item = _turn(kind.key_type), _turn(kind.item_type)
        return lambda value: None if value is None else [(key(one), item(part)) for one, part in _pairs(value)]
    if pa.types.is_list(kind):
        element = _turn(kind.value_type)
        return lambda value: None if value is None else [element(one) for one in value]
    return lambda value: value


def _tuple_of(turns: Mapping[str, _Turn], value: Any) -> tuple[Any, ...]:
    values = value if isinstance(value, tuple) else [value.get(name) for name in turns]
    return tuple(turn(one) for turn, one in zip(turns.values(), values, strict=True))


def _pairs(value: Any) -> Any:
    return value.items() if isinstance(value, Mapping) else value


def _item(value: Any) -> Any:
    """Convert a numpy scalar to a Python value."""
    return value.item()
