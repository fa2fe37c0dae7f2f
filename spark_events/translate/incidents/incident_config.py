"""Settings of alarms, of the identity of incidents, and of the links in failure events."""

from __future__ import annotations

import dataclasses
import re
import string
from collections.abc import Mapping
from urllib.parse import urlsplit

from spark_events.config import Kind, Settings, names, option, text
from spark_events.config.quoting import quoted_key
from spark_events.config.value_kinds import NAMES
from spark_events.translate.incidents.incident_keys import ENVIRONMENT, TAG

__all__ = ["URL", "AlarmConfig", "IdentityConfig", "LinkConfig", "read_identity"]

#: Placeholders of the templates.
PLACEHOLDERS = ("app", "app_id", "query", "group", "error_type", "fingerprint", "key")
_TAGS = "events.tags"
_TAG_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,62}")


def _url(value: str) -> str | None:
    if value and (urlsplit(value).scheme not in ("http", "https") or not urlsplit(value).netloc):
        raise ValueError("not a URL")
    return value.rstrip("/") or None


def _template(value: str) -> str | None:
    for _, name, format_spec, conversion in string.Formatter().parse(value):
        if name is not None and (name not in PLACEHOLDERS or format_spec or conversion):
            raise ValueError(f"a placeholder that is none of {', '.join(PLACEHOLDERS)}")
    return _url(value)


def _pattern(value: str) -> re.Pattern[str] | None:
    try:
        return re.compile(value) if value else None
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None


#: An http or https URL.
URL: Kind[str | None] = Kind("an http or https URL, or an empty value", _url)
_TEMPLATE: Kind[str | None] = Kind(
    f"an http or https URL, optionally with {', '.join(f'{{{name}}}' for name in PLACEHOLDERS)}, or an empty value",
    _template,
)
_PATTERN: Kind[re.Pattern[str] | None] = Kind(
    "a regular expression, or an empty value", _pattern, lambda pattern: "" if pattern is None else pattern.pattern
)


@dataclasses.dataclass(frozen=True, slots=True)
class AlarmConfig:
    """Settings below ``events.alarms``."""

    jobs: re.Pattern[str] | None = option(
        "jobs",
        _PATTERN,
        None,
        doc="Regular expression of job groups or descriptions whose failed jobs are alarms, for applications whose "
        "jobs are the work, such as schedulers and Thrift servers; default: none.",
    )


@dataclasses.dataclass(frozen=True, slots=True)
class LinkConfig:
    """Settings below ``events.link``."""

    history: str | None = option(
        "history", URL, None, doc="Address of the history server; default: spark.yarn.historyServer.address."
    )
    runbook: str | None = option(
        "runbook",
        _TEMPLATE,
        None,
        doc="Address of the runbook. Placeholders: {app}, {app_id}, {query}, {group}, {error_type}, {fingerprint}, "
        "{key}.",
    )
    log: str | None = option(
        "log", _TEMPLATE, None, doc="Address of the application's log; the placeholders are those of the runbook."
    )
    trace: str | None = option(
        "trace", _TEMPLATE, None, doc="Address of the application's traces; the placeholders are those of the runbook."
    )


@dataclasses.dataclass(frozen=True, slots=True)
class IdentityConfig:
    """Environment and tags of the application, which every event carries.

    Attributes:
        tags: values by the names of the tags, from ``events.tags.<name>``.
    """

    environment: str | None = option(
        "environment",
        text("a name, such as prod", NAMES),
        None,
        doc="Environment of this installation; on every event, and part of the key of every incident.",
    )
    identity: tuple[str, ...] = option(
        "identity", names, (), doc="Names of tags that are part of the key of every incident, as the environment is."
    )
    tags: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def attributes(self) -> dict[str, str]:
        """The attributes of every event."""
        found = {f"{TAG}{name}": value for name, value in self.tags.items()}
        return found if self.environment is None else {ENVIRONMENT: self.environment, **found}

    @property
    def key_attributes(self) -> tuple[str, ...]:
        """Names of the attributes that are part of the key of every incident."""
        return (ENVIRONMENT, *(f"{TAG}{name}" for name in self.identity))


def read_identity(settings: Settings) -> IdentityConfig:
    """Read environment, tags and identity; ``settings`` records the errors."""
    config = settings.read(IdentityConfig, "events") or IdentityConfig()
    tags = {}
    settings.ignore_below(_TAGS)
    for setting in settings.below(_TAGS):
        name = setting.key.partition(f"{_TAGS}.")[2]
        if not setting.value:
            settings.add_problem(
                f"{_TAGS}.{name}",
                f"{setting.key}: given an empty value, expected a text; set a value, or remove the key; set in "
                f"{setting.origin}",
            )
        elif _TAG_NAME.fullmatch(name):
            tags[name] = setting.value
        else:
            settings.add_problem(
                f"{_TAGS}.{name}",
                f"{quoted_key(setting.key)}: invalid name of a tag, expected letters, digits, '_', '.' and '-', with "
                f"a letter or '_' first, at most 63 characters; set in {setting.origin}",
            )
    for name in config.identity:
        if name not in tags:
            key, missing = settings.as_written("events.identity"), settings.as_written(f"{_TAGS}.{name}")
            settings.add_problem(
                "events.identity",
                f"{key}: given {name!r}, but {missing} is not set; set it, or remove the name; "
                f"known tags: {', '.join(tags) or 'none'}",
            )
    return dataclasses.replace(config, tags=tags)
