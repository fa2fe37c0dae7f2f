"""Finds what an error means: for an exception object (enrichment), or for its printed type and message (events).

Both ask the same entries. All client libraries are optional, so this module imports none of them.
"""

from __future__ import annotations

import re
from typing import Any

from spark_events.failures.kinds import ErrorKind
from spark_events.failures.libraries.codes import by_errno, by_sql_state, by_status, status_in
from spark_events.failures.libraries.databases import DATABASES
from spark_events.failures.libraries.library import Library
from spark_events.failures.libraries.platform import PLATFORM
from spark_events.failures.libraries.services import SERVICES

__all__ = ["LIBRARIES", "by_code", "by_type", "families", "of_exception_text", "same_error"]

LIBRARIES: tuple[Library, ...] = (*DATABASES, *SERVICES, *PLATFORM)
_BY_MODULE = {module: library for library in LIBRARIES for module in library.modules.split()}
_OS_ERRORS = {("builtins", "OSError"), ("builtins", "IOError")}
_ERRNO = re.compile(r"\[Errno (-?\d+)\]|\[WinError (\d+)\]")
#: SQLAlchemy and others print the driver's error in front of their own message.
_WRAPPED = re.compile(r"^\((?:builtins\.)?([A-Za-z_][\w.]*)\) (.*)", re.DOTALL)


def families(error: BaseException) -> list[tuple[str, str]]:
    """Return the top-level package and the name of each class of an error, the most derived class first."""
    return [(kind.__module__.partition(".")[0], kind.__name__) for kind in type(error).__mro__]


def by_type(error: BaseException) -> ErrorKind | None:
    """Return the kind of an exception object by its class and base classes, or None."""
    for module, name in _classes(error):
        library = _library(module)
        if library is None:
            continue
        kind = library.types.get(name)
        if (module, name) in _OS_ERRORS:
            kind = by_errno(getattr(error, "errno", None)) or library.by_message(str(error))
        if kind is not None:
            return kind
    return None


def by_code(error: BaseException) -> ErrorKind | None:
    """Return the kind of an exception object by a code other than an HTTP status, or by a decisive message."""
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    if isinstance(state, str):
        return by_sql_state(state) or _REFUSED
    for module, name in _classes(error):
        library = _library(module)
        if library is not None and (module, name) not in _OS_ERRORS and library.has_code(name):
            kind = _coded(library, error)
            if kind is not None:
                return kind
    return None


def same_error(error: BaseException) -> ErrorKind | None:
    """Return what events say about an exception object that is printed: see :func:`of_exception_text`."""
    kind = type(error)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return of_exception_text(f"{module}{kind.__qualname__}", str(error))


def of_exception_text(name: str, message: str) -> ErrorKind | None:
    """Return the kind of a printed exception, or None if the registry does not know it.

    Args:
        name: the class with its module or package, as printed: ``psycopg2.OperationalError``.
        message: the exception's message.

    >>> of_exception_text("requests.exceptions.HTTPError", "503 Server Error: Service Unavailable").failure_class
    'EXTERNAL_SYSTEM'
    """
    module, _, simple = name.rpartition(".")
    simple = simple.rpartition("$")[2] or simple
    library = _BY_MODULE.get(name) or _library(module or "builtins")
    wrapped = _WRAPPED.match(message)
    if wrapped is not None and (inner := of_exception_text(wrapped[1], wrapped[2])) is not None:
        return inner
    if library is None:
        return _inside(name, message)
    found = None
    if library.has_code(simple):
        found = library.by_message(message) or library.by_code(library.code_from(message))
    if found is None and library.http and (status := status_in(message)) is not None:
        status_kind = by_status(status)
        found = status_kind if status_kind.failure_class is not None else None
    if found is None and (number := _ERRNO.search(message)) and (module == "" or simple == "error"):
        found = by_errno(int(number[1] or 0))
    return found or library.types.get(simple) or _inside(name, message)


def _inside(name: str, message: str) -> ErrorKind | None:
    """Return the kind of the Java exception whose text is the message: Java copies a cause's text into its wrapper."""
    inner = _JAVA_TEXT.match(message) if "." in name else None
    return None if inner is None else of_exception_text(inner[1], inner[2] or "")


#: The text of a Java exception.
_JAVA_TEXT = re.compile(
    r"((?:java|javax|jakarta|scala|sun|com|io|net|org|ru|software)\.(?:[a-z]\w{0,60}\.){1,11}"
    r"[A-Z]\w{0,90}(?:Exception|Error))(?:: (.*))?",
    re.DOTALL,
)
#: A library that a jar contains under another package.
_SHADED = re.compile(
    r"(?:^|\.)(?:repackaged|shaded|shade|third_?party|relocated)\.(?:\w+\.)??((?:org|com|io|net|software)\..*)"
)
#: The destination answered with a code that the registry does not list.
_REFUSED = ErrorKind(None)


def _coded(library: Library, error: Any) -> ErrorKind | None:
    kind = library.by_message(str(error))
    if kind is not None or library.code_of is None:
        return kind
    try:
        code = library.code_of(error)
    except Exception:  # an object that only has the name of the library's class
        return None
    return None if code is None else library.by_code(code) or library.other


def _classes(error: BaseException) -> list[tuple[str, str]]:
    return [(kind.__module__, kind.__name__) for kind in type(error).__mro__]


def _library(module: str) -> Library | None:
    shaded = _SHADED.search(module)
    module = module if shaded is None else shaded[1]
    while module:
        if module in _BY_MODULE:
            return _BY_MODULE[module]
        module = module.rpartition(".")[0]
    return None
