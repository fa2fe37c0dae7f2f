"""Settings: text under dotted keys, read into frozen dataclasses that stand beside what they configure.

A dataclass declares its keys with :func:`option`. Reading never stops at the first mistake: every
problem is collected as one sentence with the full key, what was given and what is allowed, and a key
that nobody has read is a problem too.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from spark_events.errors import ConfigError

__all__ = [
    "Kind",
    "Option",
    "Setting",
    "Settings",
    "boolean",
    "choice",
    "duration",
    "integer",
    "names",
    "option",
    "options",
    "positive_duration",
    "text",
]

T = TypeVar("T")

_METADATA = "spark_events.option"
_SPARK = "spark."


@dataclasses.dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A type of value: how it is read from text and written as text, and what is allowed, in words."""

    allowed: str
    parse: Callable[[str], T]
    format: Callable[[T], str] = str


@dataclasses.dataclass(frozen=True, slots=True)
class Option:
    """One key of a section; ``default`` is ``dataclasses.MISSING`` where the user must say."""

    field: str
    key: str
    kind: Kind[Any]
    default: Any
    doc: str


def option(key: str, kind: Kind[T], default: T | Any = dataclasses.MISSING, *, doc: str) -> Any:
    """A field of a configuration dataclass; without a default it is required."""
    metadata = {_METADATA: (key, kind, doc)}
    return dataclasses.field(default=default, metadata=metadata)


def options(section: type) -> list[Option]:
    """The keys that a configuration dataclass declares, in their order."""
    found = []
    for field in dataclasses.fields(section):
        if _METADATA in field.metadata:
            key, kind, doc = field.metadata[_METADATA]
            found.append(Option(field.name, key, kind, field.default, doc))
    return found


class Setting(NamedTuple):
    """A value as the user gave it, and where: the file, or Spark's own configuration."""

    key: str
    value: str
    origin: str


class Settings:
    """All settings of one driver, by their key without the leading ``spark.``; those with it win."""

    def __init__(self, settings: Iterable[Setting] = ()) -> None:
        ranked = sorted(settings, key=lambda setting: setting.key.startswith(_SPARK))
        self._settings = {setting.key.removeprefix(_SPARK): setting for setting in ranked}
        self._known: set[str] = set()
        self._problems: list[str] = []

    @classmethod
    def of(cls, values: Mapping[str, str], origin: str = "a dictionary") -> Settings:
        """Settings from a plain mapping, as tests and notebooks have them."""
        return cls(Setting(key, value, origin) for key, value in values.items())

    def read(self, section: type[T], prefix: str) -> T | None:
        """The section below ``prefix``, or None when a value of it cannot be used."""
        values: dict[str, Any] = {}
        usable = True
        for declared in options(section):
            full_key = f"{prefix}.{declared.key}"
            self._known.add(full_key)
            setting = self._settings.get(full_key)
            if setting is None:
                if declared.default is dataclasses.MISSING:
                    self.complain(f"{full_key}: required, but not set; allowed is {declared.kind.allowed}")
                    usable = False
                continue
            try:
                values[declared.field] = declared.kind.parse(setting.value)
            except ValueError as error:
                reason = f" ({error})" if str(error) else ""
                allowed = declared.kind.allowed
                self.complain(
                    f"{setting.key}: given {setting.value!r}{reason}, allowed is {allowed}; set in {setting.origin}"
                )
                usable = False
        return section(**values) if usable else None

    def names_below(self, prefix: str) -> list[str]:
        """The distinct first parts of the keys below ``prefix``, in the order of the keys."""
        start = f"{prefix}."
        parts = (key[len(start) :].partition(".")[0] for key in self._settings if key.startswith(start))
        return list(dict.fromkeys(parts))

    def below(self, prefix: str) -> list[Setting]:
        """The settings below ``prefix`` as they were given; of two for one key, the one that counts."""
        return [setting for key, setting in self._settings.items() if key.startswith(f"{prefix}.")]

    def value(self, key: str) -> str | None:
        """The raw text of one key."""
        setting = self._settings.get(key)
        return None if setting is None else setting.value

    def ignore_below(self, prefix: str) -> None:
        """The keys below ``prefix`` are not judged: something worse is wrong with them as a whole."""
        self._known.update(key for key in self._settings if key.startswith(f"{prefix}."))

    def complain(self, problem: str) -> None:
        """Adds a problem that the caller has found."""
        self._problems.append(problem)

    def check(self) -> None:
        """To be called when every section has been read.

        Raises:
            ConfigError: there were problems, or keys that no section knows.
        """
        problems = list(self._problems)
        for key, setting in self._settings.items():
            if key not in self._known:
                problems.append(self._unknown(key, setting))
        if problems:
            raise ConfigError(problems)

    def _unknown(self, key: str, setting: Setting) -> str:
        near = difflib.get_close_matches(key, self._known, n=1, cutoff=0.8)
        siblings = sorted(known for known in self._known if known.rpartition(".")[0] == key.rpartition(".")[0])
        hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(siblings)}" if siblings else ""
        return f"{setting.key}: unknown key, given {setting.value!r}; set in {setting.origin}; {hint}".rstrip("; ")


def _integer(at_least: int, at_most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text) if re.fullmatch(r"[+-]?\d{1,18}", text) else None
        if value is None or not at_least <= value <= at_most:
            raise ValueError
        return value

    return parse


def integer(at_least: int, at_most: int = 2**31 - 1) -> Kind[int]:
    """A whole number within limits, both included."""
    return Kind(f"a whole number from {at_least} to {at_most}", _integer(at_least, at_most))


def _boolean(text: str) -> bool:
    try:
        return {"true": True, "false": False}[text.lower()]
    except KeyError:
        raise ValueError from None


#: ``true`` or ``false``, in any case.
boolean: Kind[bool] = Kind("true or false", _boolean, lambda value: str(value).lower())

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0}


def _duration(text: str) -> float:
    match = re.fullmatch(r"(\d{1,9})\s*(ms|s|m|min|h|d)", text)
    if match is None:
        raise ValueError
    return int(match[1]) * _SECONDS[match[2]]


def _format_duration(seconds: float) -> str:
    for unit in ("d", "h", "min", "s"):
        if seconds >= _SECONDS[unit] and (seconds / _SECONDS[unit]).is_integer():
            return f"{int(seconds / _SECONDS[unit])}{unit}"
    return f"{round(seconds * 1000)}ms"


#: A length of time, read into seconds: ``500ms``, ``10 s``, ``5min``.
duration: Kind[float] = Kind("a whole number with a unit (ms, s, min, h, d), say 10s", _duration, _format_duration)


def _positive_duration(text: str) -> float:
    seconds = _duration(text)
    if seconds <= 0:
        raise ValueError
    return seconds


#: A length of time that is not nothing.
positive_duration: Kind[float] = Kind(
    "a whole number above 0 with a unit (ms, s, min, h, d), say 10s", _positive_duration, _format_duration
)


def _text(value: str) -> str:
    if not value:
        raise ValueError("nothing")
    return value


def text(allowed: str = "a text that is not empty") -> Kind[str]:
    """Any text but the empty one; ``allowed`` says what it stands for."""
    return Kind(allowed, _text)


def choice(*allowed: str) -> Kind[str]:
    """One of a few words."""

    def parse(value: str) -> str:
        if value not in allowed:
            raise ValueError
        return value

    return Kind(f"one of {', '.join(allowed)}", parse)


def _names(value: str) -> tuple[str, ...]:
    found = [name.strip() for name in value.split(",")]
    for name in found:
        if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
            raise ValueError(f"{name!r} is not a name")
    if len(set(found)) < len(found):
        raise ValueError("a name stands there twice")
    return tuple(found)


#: Names separated by commas.
names: Kind[tuple[str, ...]] = Kind("names of letters, digits, '-' and '_', separated by commas", _names, ", ".join)
