"""Keys and encoding of answers in a shared cache.

The format is msgpack with the types of the output, so that no data from the cache is unpickled.
"""

from __future__ import annotations

import datetime
import decimal
import hashlib
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypedDict

import pyarrow as pa

from spark_events.enrichment.worker.answers import array_of, by_name, turned
from spark_events.enrichment.worker.rows import canonical

__all__ = ["AnswerCodec"]


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
        self._turns = [by_name(field.type) for field in schema]
        types: Any = tuple[tuple(_python(field.type) for field in schema)]  # type: ignore[misc]
        self._types = schema.types
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(types)
        self._misfit = misfit

    def key(self, request: Hashable) -> str:
        """Return the digest of a request."""
        return hashlib.blake2b(canonical(request).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()

    def encode(self, answer: Mapping[str, Any]) -> bytes:
        """Return the answer as an array of its columns."""
        values = [turned(turn, answer[name]) for name, turn in zip(self._names, self._turns, strict=True)]
        try:
            return bytes(self._encoder.encode(values))
        except TypeError:
            # Arrow converts what msgspec rejects: numpy values, and subclasses such as pandas.Timestamp.
            plain = [array_of([value], kind).to_pylist()[0] for value, kind in zip(values, self._types, strict=True)]
            return bytes(self._encoder.encode(plain))

    def decode(self, data: bytes) -> dict[str, Any]:
        """Return the answer.

        Raises:
            ValueError: when the bytes are not an answer that fits the output.
        """
        answer = dict(zip(self._names, self._decoder.decode(data), strict=True))
        if self._misfit(answer) is not None:
            raise ValueError("the answer does not fit the output")
        return answer


#: As a value of type Any, because type checkers know only classes whose fields are literals.
_dictionary: Any = TypedDict


def _python(kind: pa.DataType) -> Any:
    """Return the Python type of the values of an Arrow type, as a union with None."""
    if pa.types.is_struct(kind):
        # A struct of an answer may lack fields, whose values are then null.
        made: Any = _dictionary("made", {field.name: _python(field.type) for field in kind}, total=False)
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
