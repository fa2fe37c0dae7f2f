"""Settings: text under dotted keys, read into frozen dataclasses that stand beside what they configure.

A dataclass declares its keys with :func:`option`. Reading never stops at the first mistake: every
problem is collected as one sentence with the full key, what was given and what is allowed, and a key
that nobody has read is a problem too.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from spark_events.config.confidence import Confidence
from spark_events.config.kinds import Kind
from spark_events.config.references import UnresolvedError, has_reference, is_secret, is_telling, resolved, shown
from spark_events.errors import ConfigError

__all__ = ["Option", "Setting", "Settings", "option", "options"]

T = TypeVar("T")

_METADATA = "spark_events.option"
_SPARK = "spark."


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
        # Each with the key, or the prefix of keys, that it is about.
        self._problems: list[tuple[str, str]] = []
        self._confided: dict[str, dict[str, str]] = {}

    @classmethod
    def of(cls, values: Mapping[str, str], origin: str = "a dictionary") -> Settings:
        """Settings from a plain mapping, as tests and notebooks have them."""
        return cls(Setting(key, value, origin) for key, value in values.items())

    def read(self, section: type[T], prefix: str, *, resolve: bool = True) -> T | None:
        """Return the section below ``prefix``, or None when one of its values cannot be used.

        Args:
            section: a dataclass that declares its keys with :func:`option`.
            prefix: the part of its keys that comes first.
            resolve: look up ``${…}`` references. Without it, a value that contains one is taken as correct.
        """
        values: dict[str, Any] = {}
        usable = True
        for declared in options(section):
            full_key = f"{prefix}.{declared.key}"
            self._known.add(full_key)
            setting = self._settings.get(full_key)
            if setting is None:
                if declared.default is dataclasses.MISSING:
                    self.complain(full_key, f"{full_key}: required, but not set; allowed is {declared.kind.allowed}")
                    usable = False
                continue
            if not resolve and has_reference(setting.value):
                continue
            try:
                given, targets = resolved(setting.value)
                values[declared.field] = declared.kind.parse(given)
                if declared.kind.confidential or is_telling(declared.key):
                    targets.setdefault(given, "***")
                self._confided[full_key] = targets
            # A parser may be the user's own, and so may what becomes of the values: a defect there is told like a value
            # that is wrong, and ends nobody's process.
            except (Exception, SystemExit) as error:
                self.complain(full_key, _wrong(setting, declared.kind, error))
                usable = False
        try:
            return section(**values) if usable else None
        except (Exception, SystemExit) as error:
            hidden = self.confidence(prefix).hide(_said(error))
            self.complain(prefix, f"{prefix}: its keys cannot be used together: {hidden}")
            return None

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

    def confidence(self, prefix: str = "events") -> Confidence:
        """Hides what the values below ``prefix`` that have been read were not to show."""
        below = (told for key, told in self._confided.items() if key.startswith(f"{prefix}."))
        return Confidence({secret: shown for told in below for secret, shown in told.items()})

    def ignore_below(self, prefix: str) -> None:
        """The keys below ``prefix`` are not judged: something worse is wrong with them as a whole."""
        self._known.update(key for key in self._settings if key.startswith(f"{prefix}."))

    def complain(self, key: str, problem: str) -> None:
        """Record a problem that the caller found with a key, or with the keys below it."""
        self._problems.append((key, problem))

    def problems_below(self, prefix: str) -> tuple[str, ...]:
        """Return the problems of the keys below ``prefix``; unknown keys count once every section has been read."""
        return tuple(text for key, text in self._all_problems() if _is_below(key, prefix))

    def check(self, without: Collection[str] = ()) -> None:
        """Raise everything that is wrong; to be called when every section has been read.

        Args:
            without: prefixes of keys whose problems alone are no reason to raise: the caller handles them.

        Raises:
            ConfigError: there were problems, or keys that no section knows.
        """
        problems = self._all_problems()
        if any(not any(_is_below(key, prefix) for prefix in without) for key, _ in problems):
            raise ConfigError([text for _, text in problems])

    def _all_problems(self) -> list[tuple[str, str]]:
        unknown = [(key, self._unknown(key, one)) for key, one in self._settings.items() if key not in self._known]
        return [*self._problems, *unknown]

    def _unknown(self, key: str, setting: Setting) -> str:
        near = difflib.get_close_matches(key, self._known, n=1, cutoff=0.8)
        siblings = sorted(known for known in self._known if known.rpartition(".")[0] == key.rpartition(".")[0])
        hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(siblings)}" if siblings else ""
        given = shown(setting.key, setting.value)
        return f"{setting.key}: unknown key, given {given}; set in {setting.origin}; {hint}".rstrip("; ")


def _is_below(key: str, prefix: str) -> bool:
    return key == prefix or key.startswith(f"{prefix}.")


def _wrong(setting: Setting, kind: Kind[Any], error: BaseException) -> str:
    # What a parser says may quote the value, and so what a reference stands for; that of a confidential one does not
    # where it raises what it is to raise.
    is_safe = isinstance(error, ValueError) if kind.confidential else isinstance(error, UnresolvedError)
    quotes = (kind.confidential or is_secret(setting.key, setting.value)) and not is_safe
    said = _said(error, quotes)
    reason = f" ({said})" if said else ""
    given = shown(setting.key, setting.value, kind.confidential)
    return f"{setting.key}: given {given}{reason}, allowed is {kind.allowed}; set in {setting.origin}"


def _said(error: BaseException, quotes: bool = False) -> str:
    """What is wrong; a ValueError says it, of any other the type has to be told. Of one that quotes, that alone."""
    said = "" if quotes else str(error)
    return said if isinstance(error, ValueError) else f"{type(error).__name__}: {said}".rstrip(": ")
