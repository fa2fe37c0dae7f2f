"""Checks of the signatures of the user's functions, before any task runs."""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import types
from collections.abc import Callable
from typing import Any

from spark_events.errors import InvalidPlanError

__all__ = [
    "bare", "check_function", "check_resource", "name_of", "names_in", "names_reached", "qualified_name",
    "takes_context",
]  # fmt: skip

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
#: Maximum number of functions that are searched for names; helpers of a function are near it.
_MOST_FUNCTIONS = 100
_CONTEXT_NAMES = ("ctx", "context")
#: Annotations, as strings, for several rows or answers, and for a single row or answer.
_SEVERAL = re.compile(r"^(?:<class ')?(?:[\w.]+\.)?(?:list|List|Sequence|Iterable|Collection)\b")
_SINGLE = re.compile(r"^(?:<class ')?(?:[\w.]+\.)?(?:Row|dict|Dict|Mapping)\b")


def name_of(fn: Callable[..., Any]) -> str:
    """Return the name, file and line of a function, for messages."""
    # A decorator such as contextlib.asynccontextmanager returns a function of another file.
    inner = inspect.unwrap(bare(fn))
    code = getattr(inner, "__code__", None)
    name = getattr(inner, "__qualname__", None) or type(fn).__qualname__
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code is not None else name


def qualified_name(fn: Callable[..., Any]) -> str:
    """Return the function's module and name, which stay the same after a restart of the driver."""
    inner = bare(fn)
    name = getattr(inner, "__qualname__", None) or type(fn).__qualname__
    return f"{getattr(inner, '__module__', None) or ''}.{name}"


def names_in(fn: Any) -> set[str]:
    """Return the names that a function uses, including those of the functions inside it."""
    names: set[str] = set()
    left = [getattr(getattr(bare(fn), "__wrapped__", bare(fn)), "__code__", None)] if fn is not None else []
    while left:
        code = left.pop()
        if code is not None:
            # In bytecode, the names of keyword arguments are constants.
            texts = (part for one in code.co_consts for part in (one if isinstance(one, tuple) else (one,)))
            names.update(code.co_names, (text for text in texts if isinstance(text, str)))
            left += [one for one in code.co_consts if isinstance(one, types.CodeType)]
    return names


def names_reached(fn: Any) -> set[str]:
    """Return the names that a function uses, including those of the functions and methods that it names."""
    names: set[str] = set()
    seen: set[int] = set()
    left = [fn]
    while left and len(seen) < _MOST_FUNCTIONS:
        one = left.pop()
        inner = getattr(bare(one), "__wrapped__", bare(one))
        code = getattr(inner, "__code__", None)
        if code is None or id(code) in seen:
            continue
        seen.add(id(code))
        used = names_in(one)
        names |= used
        scopes = [getattr(inner, "__globals__", {}), _cells(inner), _methods(one)]
        named = [scope[name] for scope in scopes for name in used | set(code.co_freevars) if name in scope]
        left += [one for one in named if inspect.isfunction(one) or inspect.ismethod(one)]
    return names


def _cells(fn: Any) -> dict[str, Any]:
    """Return the assigned variables of the functions around ``fn`` that it uses."""
    found = {}
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=False):
        with contextlib.suppress(ValueError):  # not assigned yet
            found[name] = cell.cell_contents
    return found


def _methods(fn: Any) -> dict[str, Any]:
    """Return the methods of the object whose method or ``__call__`` is called."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    owner = fn if not inspect.isroutine(fn) else getattr(fn, "__self__", None)
    if owner is None:
        return {}
    members = {name: one for kind in reversed(type(owner).__mro__) for name, one in vars(kind).items()}
    return {name: types.MethodType(one, owner) for name, one in members.items() if inspect.isfunction(one)}


def check_function(fn: Any, *, bulk: bool = False) -> None:
    """Check that ``fn`` is an ``async def`` that accepts a row and, optionally, a context.

    Args:
        fn: the user's function.
        bulk: whether a call receives several rows.

    Raises:
        InvalidPlanError: when ``fn`` has another signature.
    """
    rows = "rows" if bulk else "row"
    wanted = f"async def fn({rows}) or async def fn({rows}, ctx)"
    if not callable(fn):
        raise InvalidPlanError(f"fn is {type(fn).__name__}, not a function; expected {wanted}")
    if inspect.isclass(fn):
        raise InvalidPlanError(
            f"fn is the class {fn.__qualname__}, not a function: pass an object of it that has an async __call__, such "
            f"as {fn.__name__}(…), or one of its async methods; expected {wanted}"
        )
    if _lacks_object(fn):
        raise InvalidPlanError(f"{name_of(fn)} is a method without its object: pass the method of an object")
    inner = bare(fn)
    if inspect.isasyncgenfunction(inner):
        raise InvalidPlanError(f"{name_of(fn)} yields, but must return its answer; expected {wanted}")
    if not inspect.iscoroutinefunction(inner):
        which = "has a decorator that is" if hasattr(inner, "__wrapped__") else "is"
        raise InvalidPlanError(
            f"{name_of(fn)} {which} not async; expected {wanted}. Call blocking code with "
            "await asyncio.to_thread(function, row)"
        )
    if _hides_context(fn) or not (_accepts(fn, 1) or _accepts(fn, 2)):
        raise InvalidPlanError(f"{name_of(fn)} takes {inspect.signature(fn)}; expected {wanted}")
    first, answer = _annotations(fn)
    if not bulk and (_SEVERAL.search(first) or _SEVERAL.search(answer)):
        raise InvalidPlanError(
            f"{name_of(fn)} takes {inspect.signature(fn)}, so it is a function of several rows: give batch_size, or "
            "accept one row and return one mapping"
        )
    if bulk and (_SINGLE.search(first) or _SINGLE.search(answer)):
        raise InvalidPlanError(
            f"{name_of(fn)} takes {inspect.signature(fn)}, so it is a function of one row: leave out batch_size, or "
            "accept a list of rows and return a list with one mapping for each"
        )


def _lacks_object(fn: Any) -> bool:
    """Return whether ``fn`` is a method that was read from its class, so that it would take the row for ``self``."""
    parts = getattr(fn, "__qualname__", "").split(".")
    return (
        inspect.isfunction(fn)
        # A decorator may already have bound the object.
        and not hasattr(fn, "__wrapped__")
        and len(parts) > 1
        and parts[-2] != "<locals>"
        and next(iter(inspect.signature(fn).parameters), "") == "self"
    )


def _annotations(fn: Callable[..., Any]) -> tuple[str, str]:
    """Return the annotations of the first argument and of the result as strings; "" if there are none."""
    signature = inspect.signature(fn)
    first = next((one.annotation for one in signature.parameters.values() if one.kind in _POSITIONAL), "")
    given = ("" if one is inspect.Signature.empty else one for one in (first, signature.return_annotation))
    argument, answer = (one if isinstance(one, str) else str(one) for one in given)
    return argument, answer


def takes_context(fn: Callable[..., Any]) -> bool:
    """Return whether the second argument is ``ctx``: it has no default, or has a name such as ``ctx``."""
    if not _accepts(fn, 1) or not _accepts(fn, 2):
        return _accepts(fn, 2)
    positional = [one for one in inspect.signature(fn).parameters.values() if one.kind in _POSITIONAL]
    return len(positional) > 1 and positional[1].name in _CONTEXT_NAMES


def check_resource(resource: Any) -> None:
    """Check that ``resource`` can be called without arguments, and detect common mistakes.

    Raises:
        InvalidPlanError: when ``resource`` has another signature.
    """
    if resource is None:
        return
    wanted = "expected a function without arguments that returns an async context manager"
    if not callable(resource) or (hasattr(resource, "__aenter__") and not inspect.isclass(resource)):
        raise InvalidPlanError(
            f"resource is {type(resource).__name__}, which is not a function, or is already open; {wanted}"
        )
    inner = bare(resource)
    if inspect.isasyncgenfunction(inner):
        raise InvalidPlanError(f"resource {name_of(resource)} yields: decorate it with contextlib.asynccontextmanager")
    if inspect.iscoroutinefunction(inner):
        raise InvalidPlanError(f"resource {name_of(resource)} is async def; {wanted}")
    try:
        inspect.signature(resource).bind()
    except TypeError:
        raise InvalidPlanError(f"resource {name_of(resource)} takes {inspect.signature(resource)}; {wanted}") from None
    except ValueError:
        # A class written in C has no signature. If it needs arguments, opening the resource reports the error.
        return


def bare(fn: Any) -> Any:
    """Return the function inside partial objects and bound methods, or the ``__call__`` of a callable object."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    if not inspect.isroutine(fn) and not inspect.isclass(fn):
        fn = type(fn).__call__
    return getattr(fn, "__func__", fn)


def _accepts(fn: Callable[..., Any], arguments: int) -> bool:
    """Return whether a function can be called with this number of positional arguments."""
    try:
        inspect.signature(fn).bind(*range(arguments))
    except TypeError:
        return False
    return True


def _hides_context(fn: Callable[..., Any]) -> bool:
    """Return whether ``ctx`` is keyword-only; the engine passes only positional arguments."""
    bound = fn.keywords if isinstance(fn, functools.partial) else {}
    parameters = inspect.signature(fn).parameters.values()
    by_keyword = {one.name for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY} - set(bound)
    return not by_keyword.isdisjoint(_CONTEXT_NAMES)
