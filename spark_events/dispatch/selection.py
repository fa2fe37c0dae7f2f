"""Selection of events and attributes for a reporter, in Flink's syntax."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

import msgspec

from spark_events.config import Kind, boolean, option
from spark_events.dispatch.entries import Entry
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
    for number, part in enumerate((part.strip() for part in text.split(";")), 1):
        if not part:
            continue
        scope, _, rest = part.partition(":")
        names = tuple(name.strip() for name in rest.split(",")) if rest else ("*",)
        for pattern in (scope, *names):
            if not _PATTERN.fullmatch(pattern):
                raise ValueError(f"pattern {number} is invalid: expected letters, digits and _ . * $ -")
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
    for number, part in enumerate(text.split(","), 1):
        key, separator, value = part.partition(":")
        if not separator or not key.strip():
            raise ValueError(f"entry {number} is not of the form key:value")
        found[key.strip()] = value.strip()
    return found


#: Filters that messages quote: scopes and names of events contain no digits.
_EVENTS = re.compile(r"[A-Za-z_.*$:;, ]*")
_FORM = "<scope>[:<name>[,<name>]], with * in either, several separated by ';'"
_FILTERS: Kind[tuple[Filter, ...]] = Kind(_FORM, _parse_filters, _format_filters, harmless=_EVENTS)
_SOME_FILTERS: Kind[tuple[Filter, ...]] = Kind(_FORM, includes_of, _format_filters, harmless=_EVENTS)
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


def may_fit(config: SelectionConfig, scope: str | None, name: str | None, severity: Severity) -> bool:
    """Return whether a reporter may accept events with these properties.

    Args:
        config: the reporter's selection.
        scope: the class scope of the events; None for any.
        name: the name of the events; None for any.
        severity: the highest severity that the events may have.
    """
    if scope is not None and name is not None and not _fits(config, scope, name):
        return False
    return severity >= (config.min_severity or Severity.TRACE)


def _fits(config: SelectionConfig, scope: str, name: str) -> bool:
    def fits(filters: tuple[Filter, ...]) -> bool:
        return any(one.matches(scope, name) for one in filters)

    return fits(config.includes) and not fits(config.excludes)


def selector(config: SelectionConfig) -> Callable[[Sequence[Entry]], Sequence[Entry]]:
    """Return a function that selects the entries of one reporter.

    The function adds the attributes of this reporter, and does not change the events of other reporters.
    """
    additional, excluded = dict(config.additional or {}), config.excluded or frozenset()
    min_severity = config.min_severity or Severity.TRACE
    plain = dataclasses.replace(config, heartbeats=None, recoveries=None, min_severity=min_severity)
    selects_all = plain == SelectionConfig(min_severity=Severity.TRACE)
    # Limit the cache: events usually have few names, but a program may generate names.
    fits = functools.lru_cache(maxsize=1_000)(functools.partial(_fits, config))

    def accepts(event: Event) -> bool:
        if event.name == HEARTBEAT:
            return bool(config.heartbeats)
        # Compare numbers, because comparing `Severity` members is slow.
        if event.severity.number < min_severity.number and not (
            config.recoveries and event.attributes.get("incident.role") == "recovery"
        ):
            return False
        return selects_all or fits(event.class_scope, event.name)

    def with_own_attributes(entry: Entry) -> Entry:
        kept = {key: value for key, value in entry.event.attributes.items() if key not in excluded}
        event = msgspec.structs.replace(entry.event, attributes=Attributes({**kept, **additional}))
        return msgspec.structs.replace(entry, event=event)

    def select(entries: Sequence[Entry]) -> Sequence[Entry]:
        if selects_all and (config.heartbeats or HEARTBEAT not in [entry.event.name for entry in entries]):
            return entries
        chosen = [entry for entry in entries if accepts(entry.event)]
        return [with_own_attributes(entry) for entry in chosen] if additional or excluded else chosen

    return select
