"""A digest of the user's functions, with what they hold, that a restarted driver makes again.

The bytes of a pickle are not it: they have the file's path, a random number for a class of the main program, sets in
an order that each process has of its own, and nothing at all of what an importable function does.
"""

from __future__ import annotations

import copyreg
import dis
import hashlib
import sys
import types
import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from spark_events.enrich.plan import Plan
from spark_events.enrich.signature import bare
from spark_events.enrich.spark.schema import typed

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["lasting"]

_PLAIN = (type(None), bool, float, complex, str, bytes, bytearray)
#: Of a class: what says nothing of what it does, or is there only sometimes.
_IDLE = frozenset({"__dict__", "__weakref__", "__doc__", "__module__", "_abc_impl"}) | {
    "__firstlineno__",
    "__static_attributes__",
    "__annotations_cache__",
    "__annotate_func__",
}
#: Of a function's code: all but where its text is.
_CODE = (
    *("co_code", "co_consts", "co_exceptiontable", "co_names", "co_varnames", "co_freevars", "co_cellvars"),
    *("co_name", "co_flags", "co_argcount", "co_posonlyargcount", "co_kwonlyargcount"),
)
_BROADCASTS = ("pyspark.broadcast", "pyspark.core.broadcast")


def lasting(plan: Plan, schema: StructType, input_cols: Sequence[str]) -> str:
    """What an answer depends on but for its row. Equal digests: equal answers; where that is in doubt, it is another.

    Args:
        plan: with the functions.
        schema: of the DataFrame.
        input_cols: what the function gets of it.
    """
    columns = [typed(schema, input_cols), typed(schema, plan.coalesce_by or ())]
    try:
        return _Digest(plan.fn, plan.resource).of([plan.fn, plan.resource, columns]).hex()
    except RecursionError:
        return uuid.uuid4().hex


class _Digest:
    """Of values and functions. The user's own are taken apart; those of libraries go by their names.

    Args:
        functions: whose packages are the user's own.
    """

    def __init__(self, *functions: Any) -> None:
        from pyspark import cloudpickle

        modules = {getattr(bare(one), "__module__", None) or "" for one in functions if one is not None}
        modules |= {"__main__", *cloudpickle.list_registry_pickle_by_value()}  # type: ignore[no-untyped-call]
        self._own = {module.partition(".")[0] for module in modules}
        self._path: list[int] = []
        # With the value itself: its id must not become another's.
        self._known: dict[int, tuple[Any, bytes]] = {}

    def of(self, value: Any) -> bytes:
        """The digest of anything."""
        if type(value) in _PLAIN:
            return _hashed(type(value).__name__, repr(value).encode())
        if id(value) in self._known:
            return self._known[id(value)][1]
        if id(value) in self._path:
            # What holds itself: how far up.
            return _hashed("again", str(len(self._path) - self._path.index(id(value))).encode())
        self._path.append(id(value))
        try:
            found = self._of(value)
        finally:
            self._path.pop()
        self._known[id(value)] = value, found
        return found

    def _of(self, value: Any) -> bytes:
        kind = type(value)
        if kind is int:
            return _hashed("int", f"{value:x}".encode())
        if kind in (tuple, list):
            return self._all(kind.__name__, value)
        if kind is dict:
            return self._all("dict", [part for item in value.items() for part in item])
        if isinstance(value, (set, frozenset)):
            return _hashed(kind.__name__, *sorted(self.of(one) for one in value))
        if kind is types.ModuleType:
            return _hashed("module", value.__name__.encode())
        if kind is types.CodeType:
            return self._all("code", [getattr(value, name, None) for name in _CODE])
        if kind is types.FunctionType:
            return self._function(value)
        if isinstance(value, type):
            return self._class(value)
        return self._object(value)

    def _all(self, kind: str, parts: Sequence[Any]) -> bytes:
        return _hashed(kind, *(self.of(part) for part in parts))

    def _function(self, fn: types.FunctionType) -> bytes:
        if self._is_a_library_s(fn):
            return _hashed("function", fn.__module__.encode(), fn.__qualname__.encode())
        code, scope = fn.__code__, fn.__globals__
        used = {name: scope[name] for name in sorted(set(_globals_of(code))) if name in scope}
        if _is_importable(fn):
            used = {name: self._imported(value) for name, value in used.items()}
        held = [_content(cell) for cell in fn.__closure__ or ()]
        return self._all("function", [code, held, fn.__defaults__, fn.__kwdefaults__, fn.__dict__, used])

    def _class(self, cls: type) -> bytes:
        if self._is_a_library_s(cls):
            return _hashed("class", cls.__module__.encode(), cls.__qualname__.encode())
        members = {name: value for name, value in sorted(vars(cls).items()) if name not in _IDLE}
        return self._all("class", [cls.__qualname__, type(cls), cls.__bases__, members])

    def _object(self, value: Any) -> bytes:
        if isinstance(value, (staticmethod, classmethod)):
            return self._all(type(value).__name__, [value.__func__])
        if isinstance(value, property):
            return self._all("property", [value.fget, value.fset, value.fdel])
        if type(value).__module__ in _BROADCASTS:
            # Its number says nothing: the next application counts anew.
            return self._all("broadcast", [value.value])
        try:
            reduce = copyreg.dispatch_table.get(type(value))
            made = reduce(value) if reduce is not None else value.__reduce_ex__(4)
        except Exception:
            return self._all("refused", [type(value), _pickled(value)])
        if isinstance(made, str):
            return self._all("global", [getattr(value, "__module__", None), made, getattr(value, "__wrapped__", None)])
        items = [list(part) if isinstance(part, Iterator) else part for part in made]
        return self._all("object", items)

    def _imported(self, value: Any) -> Any:
        """A variable of a module that executors import: what cannot be pickled is their own."""
        if isinstance(value, (type, types.FunctionType, types.ModuleType)) or _pickled(value) is not None:
            return value
        return type(value)

    def _is_a_library_s(self, value: Any) -> bool:
        return (value.__module__ or "").partition(".")[0] not in self._own and _is_importable(value)


def _hashed(kind: str, *parts: bytes) -> bytes:
    # With their lengths: where one ends and the next begins must not be in doubt.
    told = b"".join(len(part).to_bytes(8, "big") + part for part in (kind.encode(), *parts))
    return hashlib.sha256(told).digest()


def _globals_of(code: types.CodeType) -> Iterator[str]:
    """The variables of its module that a function reads, with those of the functions in it."""
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield step.argval
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _globals_of(constant)


def _pickled(value: Any) -> bytes | None:
    """None when it cannot travel, so that executors make one of their own: a lock, a descriptor of a class."""
    from pyspark import cloudpickle

    try:
        return bytes(cloudpickle.dumps(value))  # type: ignore[no-untyped-call]
    except Exception:
        return None


def _content(cell: types.CellType) -> Any:
    try:
        return [cell.cell_contents]
    except ValueError:
        return None  # not assigned yet


def _is_importable(value: Any) -> bool:
    """Whether its module, other than the main program, has it by its name."""
    found: Any = sys.modules.get(value.__module__ or "") if value.__module__ != "__main__" else None
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is value
