"""Description of the user's functions that is the same in every driver process, for keys of a shared cache.

A pickle is unsuitable, because cloudpickle assigns random ids to classes of the main script, and sets have no order.
"""

from __future__ import annotations

import inspect
import os
import sys
import types
from collections.abc import Iterator
from typing import Any

__all__ = ["described"]

_PLAIN = (str, bytes, int, float, complex, type(None))


def described(value: Any, within: tuple[int, ...] = ()) -> str:
    """Return the names of functions and classes, and the values that they reference, as a string.

    The string describes neither the code of a function nor the functions that the code calls. A global variable is part
    of the string only if its value is a string, bytes, a number or None.

    Args:
        value: a function, or any object that can be pickled.
        within: ids of the objects that contain this one.

    Raises:
        Exception: when a value has no such description: a function of a notebook, which has no file; a variable that is
            not assigned yet; or an object that only cloudpickle can pickle.
    """
    if isinstance(value, _PLAIN):
        return f"{type(value).__name__} {value!r}"
    if id(value) in within:
        return "..."
    inside = (*within, id(value))
    if isinstance(value, set | frozenset):
        return f"{{{', '.join(sorted(described(one, inside) for one in value))}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(described(one, inside) for one in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(sorted(f'{described(k, inside)}: {described(v, inside)}' for k, v in value.items()))}}}"
    if isinstance(value, types.ModuleType):
        return value.__name__
    if inspect.isclass(value):
        return _name(value)
    return f"{_name(value)} {described(_held(value), inside)}"


def _name(value: Any) -> str:
    module = getattr(value, "__module__", None) or ""
    if module == "__main__":
        file = getattr(sys.modules[module], "__file__", None)
        if not file:
            raise LookupError("the main module has no file")
        module = os.path.basename(file)
    return f"{module}:{getattr(value, '__qualname__', '')}"


def _held(value: Any) -> Any:
    """Return the values that a function or an object references."""
    if inspect.isbuiltin(value):
        return value.__self__  # the object of a bound method, such as a dictionary of `table.get`; otherwise the module
    if not inspect.isfunction(value):
        # __reduce_ex__ returns the items of a container as iterators.
        return [list(one) if isinstance(one, Iterator) else one for one in value.__reduce_ex__(4)]
    variables = inspect.getclosurevars(value)
    constants = {name: one for name, one in variables.globals.items() if isinstance(one, _PLAIN)}
    return [variables.nonlocals, constants, value.__defaults__, value.__kwdefaults__]
