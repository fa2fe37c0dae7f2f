"""Arrow batches to the rows that a function is called with."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from spark_events.enrichment.engine.failure import RowFailure, type_of
from spark_events.enrichment.worker.values import named, or_each

__all__ = ["BatchSlice", "RowReader"]


@dataclasses.dataclass(frozen=True, slots=True)
class BatchSlice:
    """Rows that the engine gets together, as Spark has them: the tag of a chunk.

    Attributes:
        batch: with all columns.
        answer_keys: by which their answers are found in the replay store, one each; empty without one.
    """

    batch: pa.RecordBatch
    answer_keys: Sequence[str] = ()


class RowReader:
    """Makes rows of columns: tuples whose values are also reached as ``row.name`` and ``row["name"]``.

    Args:
        names: of the columns that the function gets, in order.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)
        self._type = _row_type(tuple(names))

    def read(self, batch: pa.RecordBatch) -> tuple[list[Any], dict[int, RowFailure]]:
        """One row each, and by their place the failures of those that Python cannot hold; these have None there."""
        failures: dict[int, RowFailure] = {}
        if not self._names:
            return [self._type()] * batch.num_rows, failures
        columns = [_values_or_failures(array, name, failures) for array, name in named(batch, self._names)]
        # What a namedtuple's _make does, without its Python.
        rows = map(tuple.__new__, itertools.repeat(self._type), zip(*columns, strict=True))
        return list(rows), failures


def _values_or_failures(array: pa.Array, name: str, failures: dict[int, RowFailure]) -> list[Any]:
    def failed(one: pa.Array, row: int, error: Exception) -> None:
        # What the error says may hold the value.
        years = "moments and days of the years 1 to 9999, in UTC and in their time zone"
        allowed = "text in UTF-8" if isinstance(error, UnicodeError) else years
        message = f"column {name!r} ({one.type}) holds what Python cannot; allowed: {allowed}"
        failures.setdefault(row, RowFailure("error", type_of(error), message))

    return or_each(array, failed)


def _row_type(names: tuple[str, ...]) -> Any:
    # rename: a column may be called `class` or `a b`; it is then reached by row["a b"] only.
    make: Any = collections.namedtuple
    base = make("Row", names, rename=True)
    places = {name: place for place, name in enumerate(names)}
    renamed = [(place, name) for place, name in enumerate(names) if base._fields[place] != name]
    for place, _ in renamed:
        # Spark itself calls columns _1, _2: such a name must not lead to another column.
        delattr(base, f"_{place}")
    taken = set(dir(base))
    # Python itself has a meaning for names in double underscores.
    hidden = {
        name: _at(place)
        for place, name in renamed
        if name.isidentifier() and not name.startswith("__") and name not in taken
    }

    def get(self: Any, which: Any) -> Any:
        if isinstance(which, str):
            try:
                return tuple.__getitem__(self, places[which])
            except KeyError:
                raise KeyError(f"no column {which!r} among those the function gets: {', '.join(names)}") from None
        return tuple.__getitem__(self, which)

    def as_dict(self: Any) -> dict[str, Any]:
        """As of ``pyspark.sql.Row``."""
        return dict(zip(names, self, strict=True))

    return type("Row", (base,), {**hidden, "__slots__": (), "__getitem__": get, "asDict": as_dict})


def _at(place: int) -> property:
    return property(lambda row: tuple.__getitem__(row, place))
