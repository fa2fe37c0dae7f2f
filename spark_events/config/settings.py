"""Settings: strings under dotted keys, read into frozen dataclasses.

A dataclass declares its keys with :func:`option`; its keys form a section. Reading collects every problem, each as one
sentence with the full key and the allowed values, and with the user's value if it is harmless (see
:mod:`spark_events.config.quoting`). A key that belongs to no section is a problem too.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from spark_events.config.confidence import NO_WORD, Confidence, parts_of
from spark_events.config.quoting import is_harmless, is_secret_key, quoted, quoted_key
from spark_events.config.references import has_reference, resolved
from spark_events.config.value_kinds import Kind, SafeReasonError
from spark_events.errors import ConfigError

T = TypeVar("T")

_METADATA = "spark_events.option"
_SPARK = "spark."


@dataclasses.dataclass(frozen=True, slots=True)
class Option:
    """One key of a section; ``default`` is ``dataclasses.MISSING`` if the key is required."""

    field: str
    key: str
    kind: Kind[Any]
    default: Any
    doc: str


def option(key: str, kind: Kind[T], default: T | Any = dataclasses.MISSING, *, doc: str) -> Any:
    """Declare a field of a configuration dataclass; a field without a default is required."""
    metadata = {_METADATA: (key, kind, doc)}
    return dataclasses.field(default=default, metadata=metadata)


def options(section: type) -> list[Option]:
    """Return the keys that a configuration dataclass declares, in order."""
    found = []
    for field in dataclasses.fields(section):
        if _METADATA in field.metadata:
            key, kind, doc = field.metadata[_METADATA]
            found.append(Option(field.name, key, kind, field.default, doc))
    return found


class Setting(NamedTuple):
    """Value that the user set, and its origin: the file, or Spark's configuration."""

    key: str
    value: str
    origin: str


class Settings:
    """All settings of one driver, by key without the prefix ``spark.``.

    If a key is set with and without the prefix, the value with the prefix applies.

    Args:
        settings: the settings.
        resolves: whether references to variables and files are resolved. Otherwise their values are not checked.

    Attributes:
        unchecked: keys whose values were not checked.
    """

    def __init__(self, settings: Iterable[Setting] = (), resolves: bool = True) -> None:
        self.unchecked: list[str] = []
        self._resolves = resolves
        ranked = sorted(settings, key=lambda setting: setting.key.startswith(_SPARK))
        self._settings = {setting.key.removeprefix(_SPARK): setting for setting in ranked}
        self._known: set[str] = set()
        # Problems, each with the key or key prefix that it concerns.
        self._problems: list[tuple[str, str]] = []
        self._confided: dict[str, dict[str, str]] = {}

    @classmethod
    def of(cls, values: Mapping[str, str], origin: str = "a dictionary") -> Settings:
        """Create settings from a mapping, for tests and notebooks."""
        return cls(Setting(key, value, origin) for key, value in values.items())

    def read(self, section: type[T], prefix: str) -> T | None:
        """Return the section below ``prefix``, or None if one of its values is invalid.

        Args:
            section: a dataclass that declares its keys with :func:`option`.
            prefix: the common prefix of the section's keys.
        """
        values: dict[str, Any] = {}
        usable = True
        for declared in options(section):
            full_key = f"{prefix}.{declared.key}"
            self._known.add(full_key)
            setting = self._settings.get(full_key)
            if setting is None:
                if declared.default is dataclasses.MISSING:
                    key = self.as_written(full_key)
                    self.add_problem(full_key, f"{key}: required, but not set; expected {declared.kind.allowed}")
                    usable = False
                continue
            if not self._resolves and has_reference(setting.value):
                self.unchecked.append(setting.key)
                usable &= declared.default is not dataclasses.MISSING
                continue
            given = setting.value
            try:
                given, targets = resolved(setting.value)
                values[declared.field] = declared.kind.parse(given)
                self._confided[full_key] = {**_confided(declared, given), **targets}
            # A user-defined parser or Config may raise any error; report the error as an invalid value.
            except (Exception, SystemExit) as error:
                problem = invalid(setting.key, setting.value, declared.kind, error, given)
                self.add_problem(full_key, f"{problem}; set in {setting.origin}")
                usable = False
        try:
            return section(**values) if usable else None
        except (Exception, SystemExit) as error:
            hidden = self.confidence(prefix).hide(_reason_of(error))
            written = self.as_written(prefix)
            self.add_problem(prefix, f"{written}: these keys cannot be used together: {hidden}")
            return None

    def names_below(self, prefix: str) -> list[str]:
        """Return the distinct first parts of the keys below ``prefix``, in the order of the keys."""
        start = f"{prefix}."
        parts = (key[len(start) :].partition(".")[0] for key in self._settings if key.startswith(start))
        return list(dict.fromkeys(parts))

    def below(self, prefix: str) -> list[Setting]:
        """Return the effective settings below ``prefix``, as unparsed strings."""
        return [setting for key, setting in self._settings.items() if key.startswith(f"{prefix}.")]

    def value(self, key: str) -> str | None:
        """Return the raw value of one key."""
        setting = self._settings.get(key)
        return None if setting is None else setting.value

    def confidence(self, prefix: str = "events") -> Confidence:
        """Return an object that hides the secrets read below ``prefix``."""
        below = (secrets for key, secrets in self._confided.items() if key.startswith(f"{prefix}."))
        return Confidence({secret: shown for secrets in below for secret, shown in secrets.items()})

    def as_written(self, key: str) -> str:
        """Return a key with the prefix ``spark.`` if the user wrote it in the most similar key."""
        parts = key.split(".")
        for count in range(len(parts), 0, -1):
            start = ".".join(parts[:count])
            for own, setting in self._settings.items():
                if _is_below(own, start):
                    return f"{_SPARK}{key}" if setting.key.startswith(_SPARK) else key
        return key

    def retire(self, key: str) -> bool:
        """Accept a key that no longer has an effect; return whether it is set, so that the caller can warn."""
        self._known.add(key)
        return key in self._settings

    def ignore_below(self, prefix: str) -> None:
        """Do not report keys below ``prefix`` as unknown; another problem already covers them."""
        self._known.update(key for key in self._settings if key.startswith(f"{prefix}."))

    def add_problem(self, key: str, problem: str) -> None:
        """Record a problem that the caller found with a key, or with the keys below it."""
        self._problems.append((key, problem))

    def problems_below(self, prefix: str) -> tuple[str, ...]:
        """Return the problems of the keys below ``prefix``.

        Call this method after every section has been read: keys of unread sections count as unknown.
        """
        return tuple(text for key, text in self._all_problems() if _is_below(key, prefix))

    def check(self, without: Collection[str] = ()) -> None:
        """Raise an error with the collected problems; call this method after all sections have been read.

        Args:
            without: prefixes of keys whose problems the caller handles; if there are only such problems, no error is
                raised.

        Raises:
            ConfigError: there are problems, or keys that no section reads.
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
        # Write the keys of the hint as the user wrote this key: Spark ignores the other prefix in some places.
        prefix = _SPARK if setting.key.startswith(_SPARK) else ""
        known = ", ".join(f"{prefix}{sibling}" for sibling in siblings)
        hint = f"did you mean {prefix}{near[0]}?" if near else f"known here: {known}" if siblings else ""
        return f"{quoted_key(setting.key)}: unknown key; set in {setting.origin}; {hint}".rstrip("; ")


def _confided(declared: Option, given: str) -> dict[str, str]:
    """Return the secrets in a value, each with its replacement; a value that is not harmless is one."""
    if declared.kind.confidential or is_secret_key(declared.key):
        return dict.fromkeys((given, *parts_of(given)), "***")
    if is_harmless(declared.key, given, declared.kind):
        return {}
    # The value may be a common word, such as the name of a database.
    return dict.fromkeys((part for part in (given, *parts_of(given)) if NO_WORD.fullmatch(part)), "***")


def _is_below(key: str, prefix: str) -> bool:
    return key == prefix or key.startswith(f"{prefix}.")


def invalid(key: str, value: str, kind: Kind[Any], error: BaseException, given: str | None = None) -> str:
    """Return the message about an invalid value, without the value unless it is harmless.

    Args:
        key: the full key, or the name of a variable.
        value: the value as the user wrote it.
        kind: type of the value, which has raised the error.
        error: why the value is invalid.
        given: the value with its references resolved; None: the same as ``value``.
    """
    resolved_value = value if given is None else given
    text = _reason_of(error)
    is_shown = isinstance(error, SafeReasonError) or (is_harmless(key, value, kind) and resolved_value == value)
    if not is_shown and (not isinstance(error, ValueError) or _quotes(text, resolved_value)):
        # A parser's message may quote the value or a part of it.
        text = "" if isinstance(error, ValueError) else type(error).__name__
    reason = f" ({text})" if text else ""
    return f"{key}: given {quoted(key, value, kind)}{reason}, expected {kind.allowed}"


def _quotes(text: str, value: str) -> bool:
    """Return whether a text contains a value, or a word of it."""
    words = set(re.findall(r"\w{3,}", value.lower()))
    return (len(value) > 2 and value in text) or not words.isdisjoint(re.findall(r"\w{3,}", text.lower()))


def _reason_of(error: BaseException) -> str:
    """Describe an exception: the message of a ValueError; type and message of other exceptions."""
    text = str(error)
    return text if isinstance(error, ValueError) else f"{type(error).__name__}: {text}".rstrip(": ")
