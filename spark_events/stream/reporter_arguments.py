"""Convert the ``reporters=`` argument to settings and reporter objects."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from spark_events.config.quoting import quoted_key
from spark_events.errors import ConfigError
from spark_events.reporters.reporter import Reporter

#: Type of the ``reporters`` argument: a dict by name, or a list. Each element is a reporter type, a dict of keys, a
#: Reporter class, or a reporter object.
Reporters: TypeAlias = Mapping[str, Any] | Iterable[Any]

_PREFIX = "events.reporter"


class Given(NamedTuple):
    """Active reporters: their names and settings, and factories for reporter objects, which have no settings."""

    names: tuple[str, ...]
    settings: dict[str, str]
    own: dict[str, Callable[[], Reporter]]


def given(reporters: Reporters) -> Given:
    """Convert the caller's ``reporters`` argument.

    Raises:
        ConfigError: when an element is not a reporter; lists every problem.
    """
    names: list[str] = []
    settings: dict[str, str] = {}
    own: dict[str, Callable[[], Reporter]] = {}
    problems: list[str] = []
    for name, what in _named(reporters, problems):
        names.append(name)
        if isinstance(what, Reporter):
            # Return the same object on every call, so that a replacement thread continues with it.
            own[name] = partial(_itself, what)
        elif isinstance(what, type) and issubclass(what, Reporter):
            if _is_importable(what):
                settings[f"{_PREFIX}.{name}.type"] = f"{what.__module__}:{what.__qualname__}"
            else:
                own[name] = partial(_made, what)
        elif isinstance(what, str):
            settings[f"{_PREFIX}.{name}.type"] = what
        elif isinstance(what, Mapping):
            settings.update(settings_of(what, f"{_PREFIX}.{name}", problems))
        else:
            problems.append(
                f"reporters: given {_given(what)} for {name!r}, expected a type such as 'file', a dict of its keys, a "
                f"Reporter class, or a reporter object"
            )
    if problems:
        raise ConfigError(problems)
    return Given(tuple(names), settings, own)


def settings_of(values: Mapping[Any, Any], prefix: str, problems: list[str]) -> dict[str, str]:
    """Flatten nested keys to dotted keys below ``prefix``, and convert values to strings.

    Args:
        values: the keys and values; a nested mapping adds a dotted level.
        prefix: the common prefix of all keys; may be empty.
        problems: receives a message for each invalid key or value.
    """
    found: dict[str, str] = {}
    for key, value in values.items():
        whole = f"{prefix}.{key}" if prefix else str(key)
        if not isinstance(key, str) or not key.strip():
            problems.append(f"{prefix}: given the key {_given(key)}, expected a str")
        elif isinstance(value, Mapping):
            found.update(settings_of(value, whole, problems))
        elif (text := _text(value)) is None:
            problems.append(f"{whole}: given {_given(value)}, expected a str or a number")
        else:
            found[whole] = text
    return found


def _given(value: object) -> str:
    """Describe a value that may be a secret; only numbers and None are quoted."""
    is_harmless = value is None or isinstance(value, (bool, int, float)) or value == ""
    return repr(value) if is_harmless else f"a value of type {type(value).__name__}"


def _text(value: object) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, timedelta):
        return f"{round(value.total_seconds() * 1000)}ms"
    if isinstance(value, (list, tuple)):
        parts = [_text(part) for part in value]
        return None if None in parts else ",".join(part for part in parts if part is not None)
    return str(value) if isinstance(value, (str, int, float, os.PathLike)) else None


def _named(reporters: object, problems: list[str]) -> Iterator[tuple[str, Any]]:
    if isinstance(reporters, (str, Reporter, type)):
        reporters = [reporters]
    if isinstance(reporters, Mapping):
        for name, what in reporters.items():
            if isinstance(name, str) and name and "." not in name:
                yield name, what
            else:
                problems.append(f"reporters: given the name {quoted_key(str(name))!r}, expected a str without dots")
        return
    if not isinstance(reporters, Iterable):
        problems.append(
            f"reporters: given {_given(reporters)}, expected a list of reporters, or a dict of reporters by name"
        )
        return
    taken: dict[str, int] = {}
    for what in reporters:
        name = _name(what)
        taken[name] = taken.get(name, 0) + 1
        yield name if taken[name] == 1 else f"{name}-{taken[name]}", what


def _name(what: Any) -> str:
    """Return the default name for a reporter without a name, derived from its type."""
    if isinstance(what, Mapping):
        what = what.get("type", "reporter")
    if isinstance(what, Reporter):
        what = type(what)
    name = what.__name__ if isinstance(what, type) else str(what).rpartition(":")[2].rpartition(".")[2]
    short = name.removesuffix("Reporter") or name
    return short[:1].lower() + short[1:]


def _is_importable(what: type) -> bool:
    """Return whether another process can import the class by its path."""
    return what.__module__ != "__main__" and "<locals>" not in what.__qualname__


def _itself(reporter: Reporter) -> Reporter:
    return reporter


def _made(factory: type[Reporter]) -> Reporter:
    return factory(factory.Config())
