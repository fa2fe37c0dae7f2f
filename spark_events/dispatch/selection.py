"""Selection of events and attributes for a reporter, in Flink's syntax."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple

import msgspec

from spark_events.config import Kind, boolean, option
from spark_events.dispatch.entries import Entries
from spark_events.event import Attributes, Event, Severity
from spark_events.event.heartbeat import HEARTBEAT
from spark_events.reporters.reporter import severity


class Filter(NamedTuple):
    """Filter for event scopes and names, in the form ``<scope>[:<name>[,<name>]]``.

    Each part is a pattern in which ``*`` matches any characters.
    """

    scope: str
    names: tuple[str, ...]

    def matches(self, scope: str, name: str) -> bool:
        """Return whether the scope and one of the names match; a pattern must match the whole string."""
        return fnmatchcase(scope, self.scope) and any(fnmatchcase(name, pattern) for pattern in self.names)


_PATTERN = re.compile(r"[A-Za-z0-9_.*$-]+")


def _parse_filters(text: str) -> tuple[Filter, ...]:
    found = []
    for part in (part.strip() for part in text.split(";")):
        if not part:
            continue
        scope, _, rest = part.partition(":")
        names = tuple(name.strip() for name in rest.split(",")) if rest else ("*",)
        for pattern in (scope, *names):
            if not _PATTERN.fullmatch(pattern):
                raise ValueError(f"{pattern!r} is not a pattern: expected letters, digits and _ . * $ -")
        found.append(Filter(scope, names))
    return tuple(found)


def includes_of(text: str) -> tuple[Filter, ...]:
    """Parse a value of ``filter.includes``.

    Raises:
        ValueError: the value contains an invalid pattern or none.
    """
    filters = _parse_filters(text)
    if not filters:
        raise ValueError("nothing")
    return filters


def _format_filters(filters: tuple[Filter, ...]) -> str:
    return ";".join(f"{one.scope}:{','.join(one.names)}" for one in filters)


def _parse_variables(text: str) -> Mapping[str, str]:
    found = {}
    for part in text.split(","):
        key, separator, value = part.partition(":")
        if not separator or not key.strip():
            raise ValueError(f"{part.strip()!r} is not of the form key:value")
        found[key.strip()] = value.strip()
    return found


_FORM = "<scope>[:<name>[,<name>]], with * in either, several separated by ';'"
_FILTERS: Kind[tuple[Filter, ...]] = Kind(_FORM, _parse_filters, _format_filters)
_SOME_FILTERS: Kind[tuple[Filter, ...]] = Kind(_FORM, includes_of, _format_filters)
_VARIABLES: Kind[Mapping[str, str]] = Kind(
    "key:value pairs separated by commas",
    _parse_variables,
    lambda variables: ",".join(f"{key}:{value}" for key, value in variables.items()),
)
_KEYS: Kind[frozenset[str]] = Kind(
    "keys separated by ';'",
    lambda text: frozenset(key.strip() for key in re.split("[;,]", text) if key.strip()),
    lambda keys: ";".join(sorted(keys)),
)


@dataclasses.dataclass(frozen=True, slots=True)
class SelectionConfig:
    """Event selection settings under ``events.reporter.<name>.``."""

    includes: tuple[Filter, ...] = option(
        "filter.includes",
        _SOME_FILTERS,
        (Filter("*", ("*",)),),
        doc="Report only events that match one of these patterns; types that use only some events have "
        "a narrower default.",
    )
    excludes: tuple[Filter, ...] = option(
        "filter.excludes", _FILTERS, (), doc="Skip events that match one of these patterns; overrides includes."
    )
    min_severity: Severity | None = option(
        "filter.min-severity",
        severity,
        None,
        doc="Skip events below this severity; default: set by the reporter's type.",
    )
    heartbeats: bool | None = option(
        "heartbeats",
        boolean,
        None,
        doc="Report heartbeats too, whatever the filter selects; default: set by the reporter's type.",
    )
    recoveries: bool | None = option(
        "recoveries",
        boolean,
        None,
        doc="Report events that close an incident, whatever their severity; default: set by the reporter's type.",
    )
    additional: Mapping[str, str] | None = option(
        "scope.variables.additional", _VARIABLES, None, doc="Attributes added to every event of this reporter."
    )
    excluded: frozenset[str] | None = option(
        "scope.variables.excludes", _KEYS, None, doc="Attributes left out of every event of this reporter."
    )


class Selection:
    """Select the events of one reporter and add its attributes, without changing other reporters' events."""

    def __init__(self, config: SelectionConfig) -> None:
        self._config = config
        self._additional = dict(config.additional or {})
        self._excluded = config.excluded or frozenset()
        self._heartbeats = bool(config.heartbeats)
        self._recoveries = bool(config.recoveries)
        self._min_severity = config.min_severity or Severity.TRACE
        self._everything = dataclasses.replace(config, heartbeats=None, recoveries=None) == SelectionConfig()
        # Limit the cache: events usually have few names, but a program may generate names.
        self._fits = functools.lru_cache(maxsize=1_000)(self._matches)

    def may_fit(self, scope: str | None, name: str | None, severity: Severity) -> bool:
        """Return whether the selection may accept events with these properties.

        Args:
            scope: the class scope of the events; None for any.
            name: the name of the events; None for any.
            severity: the highest severity that the events may have.
        """
        if scope is not None and name is not None and not self._fits(scope, name):
            return False
        return severity >= self._min_severity

    def of(self, entries: Entries) -> Entries:
        """Return the selected entries, with the attributes that this reporter adds."""
        if entries.has_heartbeat and not self._heartbeats:
            entries = Entries(entry for entry in entries if entry.event.name != HEARTBEAT)
        if self._everything:
            return entries
        chosen = [entry for entry in entries if self._accepts(entry.event)]
        if self._additional or self._excluded:
            chosen = [msgspec.structs.replace(entry, event=self._with_own_attributes(entry.event)) for entry in chosen]
        return Entries(chosen)

    def _accepts(self, event: Event) -> bool:
        if event.name == HEARTBEAT:
            # The caller has already removed the heartbeats for other reporters.
            return True
        if event.severity < self._min_severity and not (
            self._recoveries and event.attributes.get("incident.role") == "recovery"
        ):
            return False
        return self._fits(event.class_scope, event.name)

    def _matches(self, scope: str, name: str) -> bool:
        def fits(filters: tuple[Filter, ...]) -> bool:
            return any(one.matches(scope, name) for one in filters)

        return fits(self._config.includes) and not fits(self._config.excludes)

    def _with_own_attributes(self, event: Event) -> Event:
        kept = {key: value for key, value in event.attributes.items() if key not in self._excluded}
        return msgspec.structs.replace(event, attributes=Attributes({**kept, **self._additional}))
