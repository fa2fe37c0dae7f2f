"""Conversion of answers to Arrow columns; an answer that does not fit the output fails its row, not the task."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from spark_events.enrichment.engine.failure import RowFailure, type_of
from spark_events.enrichment.worker.type_checks import (
    check_of,
    described,
    has_required,
    listed,
    null_below,
    spark_name,
    surely_fits,
)
from spark_events.enrichment.worker.values import pairs_of

_Turn: TypeAlias = Callable[[Any], Any]


@functools.lru_cache(maxsize=256)
def by_name(kind: pa.DataType) -> _Turn | None:
    """Return a function that converts structs to dictionaries and maps to pairs; None if the type has neither.

    Arrow has already rejected invalid values, so the function may leave them unchanged or raise an error.
    """
    if pa.types.is_struct(kind):
        return functools.partial(_struct, {field.name: by_name(field.type) for field in kind})
    if pa.types.is_map(kind):
        return functools.partial(_pairs, by_name(kind.key_type), by_name(kind.item_type))
    element = by_name(kind.value_type) if pa.types.is_list(kind) else None
    return None if element is None else functools.partial(_elements, element)


def _struct(fields: Mapping[str, _Turn | None], value: Any) -> Any:
    named = dict(zip(fields, value, strict=True)) if isinstance(value, tuple) else value
    if not isinstance(named, dict):
        return named
    return {name: turned(fields.get(name), part) for name, part in named.items()}


def _pairs(key: _Turn | None, item: _Turn | None, value: Any) -> Any:
    # Leave iterators unchanged, because they can be consumed only once.
    if not isinstance(value, Collection):
        return value
    # Use a list of pairs, because a dictionary cannot be a key of another dictionary.
    pairs: Iterable[Any] = pairs_of(value)
    # Leave other pairs, such as lists, unchanged, because Arrow rejects them.
    return [
        (turned(key, pair[0]), turned(item, pair[1])) if isinstance(pair, tuple) and len(pair) == 2 else pair
        for pair in pairs
    ]


def _elements(element: _Turn, value: Any) -> Any:
    # Leave iterators unchanged, because they can be consumed only once.
    if not isinstance(value, Collection) or isinstance(value, (str, bytes, Mapping)):
        return value
    return [turned(element, one) for one in value]


def turned(turn: _Turn | None, value: Any) -> Any:
    """Return the value, converted by a function from :func:`by_name`."""
    return value if turn is None or value is None else turn(value)


#: Maximum size of a record batch of answers. Arrow's 32-bit offsets and Spark's reader cannot address 2 GiB, and every
#: writer and reader keeps the whole batch in memory.
MOST_BYTES = 64 << 20


class AnswerWriter:
    """Writer that checks answers against the output and converts them to columns.

    Args:
        schema: the schema of the output; a field that is not nullable rejects None.
        most_bytes: maximum size of the columns of one part, see :meth:`parts`; a single row may exceed it.
    """

    def __init__(self, schema: pa.Schema, most_bytes: int = MOST_BYTES) -> None:
        self._schema = schema
        self._most_bytes = most_bytes
        self._names = list(schema.names)
        self._fields = list(schema)
        self._required = [index for index, field in enumerate(self._fields) if not field.nullable]
        self._checks = [check_of(field.type, field.name) for field in self._fields]
        self._strict = [has_required(field.type) for field in self._fields]
        single = len(self._names) == 1
        get = operator.itemgetter(*self._names)
        self._get: Callable[[Any], tuple[Any, ...]] = (lambda answer: (get(answer),)) if single else get
        self._getters = [operator.itemgetter(name) for name in self._names]
        self._nothing = (None,) * len(self._names)
        self._sure = [surely_fits(field.type) for field in self._fields]
        for field in self._fields:
            # The first array of a process imports pyarrow modules. Create it now, so that the imports do not delay the
            # calls.
            pa.array([], field.type)

    def write(self, answers: Sequence[Any]) -> tuple[list[pa.Array], dict[int, RowFailure]]:
        """Return the output's columns, and failures by row: the failures passed in and those that this method finds.

        The values of a failed row are null.

        Raises:
            ArrowCapacityError: when several answers together exceed the capacity of one array.
        """
        failures: dict[int, RowFailure] = {}
        columns = self._columns(answers)
        if columns is None:
            rows = self._rows(answers, failures)
            columns = list(zip(*rows, strict=True)) if rows else [()] * len(self._names)
        arrays = []
        for index, field in enumerate(self._fields):
            arrays.append(self._array(index, field, columns[index], failures))
        if failures:
            # If a failure is found in a later column, the earlier columns still have the row's values; replace them
            # with None.
            cleared = [[None if row in failures else value for row, value in enumerate(column)] for column in columns]
            arrays = [array_of(column, field.type) for column, field in zip(cleared, self._fields, strict=True)]
        return arrays, failures

    def misfit(self, answer: Any) -> RowFailure | None:
        """Return the reason why an answer does not fit, or None; for common answers, the check needs no Arrow array."""
        return None if self._is_plain(answer) else self.write([answer])[1].get(0)

    def _is_plain(self, answer: Any) -> bool:
        if type(answer) is not dict or len(answer) != len(self._names):
            return False
        try:
            values = self._get(answer)
        except KeyError:
            return False
        fit = all(value is None or sure(value) for sure, value in zip(self._sure, values, strict=True))
        return fit and not any(values[index] is None for index in self._required)

    def parts(
        self, answers: list[Any], mean: float | None
    ) -> Iterator[tuple[int, list[pa.Array], dict[int, RowFailure]]]:
        """Yield the columns in parts of bounded size: the first row of the part, its columns and its failures.

        There is usually one part. If there are several, the answers of a converted part are removed from the list.

        Args:
            answers: the answers, with failures among them.
            mean: mean estimated size of an answer in bytes; None if unknown.
        """
        rows = len(answers)
        step = rows if not mean else max(1, min(rows, int(self._most_bytes / mean)))
        todo = [(start, min(start + step, rows)) for start in range(0, rows, step or 1)] or [(0, 0)]
        todo.reverse()
        while todo:
            start, stop = todo.pop()
            try:
                arrays, failures = self.write(answers if stop - start == rows else answers[start:stop])
                fits = stop - start <= 1 or sum(array.nbytes for array in arrays) <= self._most_bytes
            except pa.ArrowCapacityError:
                fits = False
            if not fits:
                middle = (start + stop) // 2
                todo += [(middle, stop), (start, middle)]
                continue
            if stop - start < rows:
                answers[start:stop] = [None] * (stop - start)
            yield start, arrays, failures

    def _columns(self, answers: Sequence[Any]) -> list[Sequence[Any]] | None:
        """Return the values by column, extracted only by C code; None if an answer needs a closer check."""
        if operator.countOf(map(type, answers), dict) != len(answers):
            return None
        try:
            columns: list[Sequence[Any]] = [list(map(get, answers)) for get in self._getters]
        except KeyError:
            return None
        # Every answer has all columns. An equal total length therefore means that no answer has more columns.
        if sum(map(len, answers)) != len(answers) * len(columns):
            return None
        missing = any(value is None for index in self._required for value in columns[index])
        return None if missing else columns

    def _rows(self, answers: Sequence[Any], failures: dict[int, RowFailure]) -> list[tuple[Any, ...]]:
        rows = []
        for row, answer in enumerate(answers):
            values = self._slow(row, answer, failures)
            for index in self._required:
                if values[index] is None and row not in failures:
                    failures[row] = _misfit(_not_null(self._names[index]))
            rows.append(values)
        return rows

    def _slow(self, row: int, answer: Any, failures: dict[int, RowFailure]) -> tuple[Any, ...]:
        if isinstance(answer, RowFailure):
            failures[row] = answer
            return self._nothing
        try:
            return self._values(row, answer, failures)
        except Exception as error:
            # A user-defined mapping raised an error. Omit the error's message, because it may contain the value.
            kind = type(answer).__name__
            failures[row] = _misfit(f"the function returned {kind}, whose values cannot be read: {type_of(error)}")
            return self._nothing

    def _values(self, row: int, answer: Any, failures: dict[int, RowFailure]) -> tuple[Any, ...]:
        if not isinstance(answer, Mapping):
            wanted = ", ".join(self._names)
            failures[row] = _misfit(f"the function returned {type(answer).__name__}, not a mapping with {wanted}")
        elif set(answer) != set(self._names):
            missing = [name for name in self._names if name not in answer]
            extra = sorted(str(name) for name in set(answer) - set(self._names))
            problems = [f"without {listed(missing)}"] if missing else []
            problems += [f"with {listed(extra)}, which the output does not have"] if extra else []
            failures[row] = _misfit(f"the function returned a mapping {' and '.join(problems)}")
        else:
            return self._get(answer)
        return self._nothing

    def _array(self, index: int, field: pa.Field, values: Sequence[Any], failures: dict[int, RowFailure]) -> pa.Array:
        check = self._checks[index]
        try:
            if check is None or check(values) is None:
                array = array_of(values, field.type)
                if self._null_below(index, array) is None:
                    return array
        except pa.ArrowCapacityError:
            # Each single answer may still fit.
            if len(values) > 1:
                raise
        except Exception:
            # This is an Arrow error, or an error that a value of a user-defined class raised.
            pass
        # At least one value does not fit, so check the values one by one.
        fitting = list(values)
        for row, value in enumerate(values):
            wrong = self._wrong(index, field, value)
            if wrong is not None:
                fitting[row] = None
                if row not in failures:
                    failures[row] = _misfit(wrong)
        return array_of(fitting, field.type)

    def _wrong(self, index: int, field: pa.Field, value: Any) -> str | None:
        """Return the reason why a value does not fit.

        Arrow's own message is not used, because it would contain the value, which may be a secret.
        """
        check = self._checks[index]
        try:
            problem = None if check is None else check([value])
            if problem is not None:
                return problem
            path = self._null_below(index, array_of([value], field.type))
        except Exception:
            return f"column {field.name!r} is {spark_name(field.type)}, but the function returned {described(value)}"
        return None if path is None else _not_null(path)

    def _null_below(self, index: int, array: pa.Array) -> str | None:
        return null_below(array, self._names[index]) if self._strict[index] else None


def array_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return the values as an Arrow array; a value of a struct may be a tuple or a dictionary."""
    try:
        array = pa.array(values, kind)
    except pa.ArrowTypeError:
        # Each single value may fit: in one array, Arrow accepts either tuples or dictionaries for structs, but not
        # both.
        turn = by_name(kind)
        if turn is None:
            raise
        array = pa.array([turned(turn, value) for value in values], kind)
    if isinstance(array, pa.ChunkedArray):
        # Beyond 2 GiB, pyarrow splits strings and bytes into chunks, but raises an error for types that contain strings
        # or bytes.
        raise pa.ArrowCapacityError("more than one array holds")
    return array


def _misfit(message: str) -> RowFailure:
    return RowFailure(kind="error", type="OutputError", message=message, attempts=1)


def _not_null(path: str) -> str:
    return f"column {path!r} is NOT NULL, but the function returned None"
