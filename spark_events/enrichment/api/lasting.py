"""A digest of the user's functions, with what they hold, that a restarted driver makes again.

The bytes of a pickle are not it: they have the file's path, a random number for a class of the main program, sets in
an order that each process has of its own, and nothing at all of what an importable function does.
"""

from __future__ import annotations

import contextlib
import copyreg
import hashlib
import logging
import sys
import types
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spark_events.enrichment.api.libraries import found, is_library
from spark_events.enrichment.api.reads import chains, imports
from spark_events.enrichment.api.schema import typed
from spark_events.enrichment.plan import Plan
from spark_events.enrichment.signature import bare, name_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["lasting"]

_LOG = logging.getLogger(__name__)
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


def lasting(plan: Plan, schema: StructType, input_cols: Sequence[str], identity: Sequence[str]) -> str:
    """What an answer depends on but for its row. Equal digests: equal answers; where that is in doubt, it is another.

    Args:
        plan: with the functions.
        schema: of the DataFrame.
        input_cols: what the function gets of it.
        identity: what tells one row from another.
    """
    columns = [typed(schema, names) for names in (input_cols, plan.coalesce_by or (), identity)]
    try:
        return _Digest(_own(plan)).whole([*_functions(plan), columns]).hex()
    except Exception as error:
        # Nested too deeply, or it does not let itself be looked at.
        what = f"{type(error).__name__}: {error}"
        _LOG.warning("the replay store will not know the answers of %s again: %s", name_of(plan.fn), what)
        return uuid.uuid4().hex


class _Digest:
    """Of values and functions. The user's own are taken apart; those of libraries go by their names.

    Functions, classes and modules go by their numbers, in the order in which they are met, and are taken apart one
    after the other at the end: so it does not matter how they refer to each other, nor by how many others.

    Args:
        own: packages that are the user's own wherever they are.
        path: what is being looked at, from the outside in.
    """

    def __init__(self, own: frozenset[str], path: list[int] | None = None) -> None:
        self._own = own
        self._path: list[int] = [] if path is None else path
        # With the value itself: its id must not become another's.
        self._known: dict[int, tuple[Any, bytes]] = {}
        self._numbers: dict[object, int] = {}
        self._definitions: list[tuple[Any, Callable[[], bytes]]] = []
        self._libraries: dict[str, bool] = {}

    def whole(self, value: Any) -> bytes:
        """The digest of anything, with all that it refers to."""
        told = self.of(value)
        # They become more meanwhile.
        return _hashed("whole", told, *(definition() for _, definition in self._definitions))

    def of(self, value: Any) -> bytes:
        """The digest of a value; of what it refers to, the numbers."""
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
        if kind is types.MappingProxyType:
            return self._all("view", [dict(value)])
        if isinstance(value, (set, frozenset)):
            return _hashed(kind.__name__, *sorted(self._alone(one) for one in value))
        if isinstance(value, types.ModuleType):
            if self._is_a_library(value.__name__):
                return _hashed("module", value.__name__.encode())
            return self._later(id(value), value, lambda: self._module(value))
        if kind is types.CodeType:
            return self._all("code", [getattr(value, name, None) for name in _CODE])
        if kind is types.FunctionType:
            if self._is_a_library_s(value):
                return _hashed("function", value.__module__.encode(), value.__qualname__.encode())
            return self._later(id(value), value, lambda: self._function(value))
        if isinstance(value, type):
            if self._is_a_library_s(value):
                return _hashed("class", value.__module__.encode(), value.__qualname__.encode())
            return self._later(id(value), value, lambda: self._class(value))
        return self._object(value)

    def _all(self, kind: str, parts: Sequence[Any]) -> bytes:
        return _hashed(kind, *(self.of(part) for part in parts))

    def _alone(self, value: Any) -> bytes:
        """Of one of a set: no other one comes before it, so it must not depend on what has been met."""
        if type(value) in _PLAIN or type(value) is int:
            return self.of(value)
        return _Digest(self._own, self._path).whole(value)

    def _later(self, key: object, value: Any, definition: Callable[[], bytes]) -> bytes:
        number = self._numbers.setdefault(key, len(self._numbers))
        if number == len(self._definitions):
            self._definitions.append((value, definition))
        return _hashed("number", str(number).encode())

    def _function(self, fn: types.FunctionType) -> bytes:
        code, scope = fn.__code__, fn.__globals__
        used = self._used(code, scope)
        if _is_importable(fn):
            used = {name: self._imported(value) for name, value in used.items()}
        held = [_content(cell) for cell in fn.__closure__ or ()]
        told = self._all("function", [code, held, fn.__defaults__, fn.__kwdefaults__, fn.__dict__, used])
        return _hashed("function", told, *self._files(imports(code, _package(scope))))

    def _used(self, code: types.CodeType, scope: Mapping[str, Any]) -> dict[str, Any]:
        """What it reads of its module, and of the user's modules that it finds there: of these, what it reads alone."""
        used: dict[str, Any] = {}
        for name, *attributes in sorted(set(chains(code))):
            if name not in scope:
                continue
            value = scope[name]
            for attribute in attributes:
                if not isinstance(value, types.ModuleType) or self._is_a_library(value.__name__):
                    break
                if attribute not in vars(value):
                    break  # who knows where it comes from: the whole module
                name = f"{name}.{attribute}"  # noqa: PLW2901
                value = self._imported(vars(value)[attribute])
            used[name] = value
        return used

    def _class(self, cls: type) -> bytes:
        members = {name: value for name, value in sorted(vars(cls).items()) if name not in _IDLE}
        return self._all("class", [cls.__qualname__, type(cls), cls.__bases__, members])

    def _module(self, module: types.ModuleType) -> bytes:
        """One that is used in a way that does not tell what of it."""
        names = sorted(name for name in vars(module) if not (name.startswith("__") and name.endswith("__")))
        return self._all("module", [module.__name__, {name: self._imported(vars(module)[name]) for name in names}])

    def _files(self, names: Iterable[str]) -> list[bytes]:
        """Of modules that are imported when the function is called, their code: here they may never be imported."""
        # A package is imported before what is in it.
        ways = [name.split(".") for name in names]
        return [
            self._file(name) for name in sorted({".".join(way[:end]) for way in ways for end in range(1, len(way) + 1)})
        ]

    def _file(self, name: str) -> bytes:
        if self._is_a_library(name):
            return _hashed("module", name.encode())
        return self._later(name, name, lambda: self._code_of_module(name))

    def _code_of_module(self, name: str) -> bytes:
        spec = found(name)
        code = None
        with contextlib.suppress(Exception):  # why it cannot be read is told where it is imported
            code = spec.loader.get_code(name)  # type: ignore[union-attr]
        if code is None:
            # No module but something in one, whose code has been looked at; or one that a program has made.
            return self._all("module", [name, sys.modules.get(name)])
        package = name if spec is not None and spec.submodule_search_locations is not None else name.rpartition(".")[0]
        return _hashed("file", name.encode(), self.of(code), *self._files(imports(code, package)))

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
        # Of what holds it, the rest counts all the same.
        if type(value) is dict:
            return {name: self._imported(part) for name, part in value.items()}
        if type(value) in (list, tuple):
            return [self._imported(part) for part in value]
        return type(value)

    def _is_a_library_s(self, value: Any) -> bool:
        return self._is_a_library(value.__module__ or "") and _is_importable(value)

    def _is_a_library(self, module: str) -> bool:
        known = self._libraries.get(module)
        if known is None:
            where = sys.modules.get(module) or found(module)
            own = module.partition(".")[0] in self._own
            known = self._libraries[module] = not own and where is not None and is_library(module, where)
        return known


def _hashed(kind: str, *parts: bytes) -> bytes:
    # With their lengths: where one ends and the next begins must not be in doubt.
    told = b"".join(len(part).to_bytes(8, "big") + part for part in (kind.encode(), *parts))
    return hashlib.sha256(told).digest()


def _functions(plan: Plan) -> list[Callable[..., Any] | None]:
    """Those that make an answer, and the one that says whether it is one."""
    return [plan.fn, plan.resource, None if plan.retry is None else plan.retry.on_result]


def _own(plan: Plan) -> frozenset[str]:
    """The packages of the functions, also where they are installed, and those that travel as they are."""
    from pyspark import cloudpickle

    modules = {getattr(bare(one), "__module__", None) or "" for one in _functions(plan) if one is not None}
    modules |= {"__main__", *cloudpickle.list_registry_pickle_by_value()}  # type: ignore[no-untyped-call]
    return frozenset(module.partition(".")[0] for module in modules)


def _package(scope: Mapping[str, Any]) -> str:
    """Where a function's module is."""
    package = scope.get("__package__")
    return package if isinstance(package, str) else str(scope.get("__name__", "")).rpartition(".")[0]


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
