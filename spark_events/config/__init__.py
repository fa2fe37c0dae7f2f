"""Settings: parse strings under dotted keys into frozen dataclasses."""

from spark_events.config.folders import state_folder
from spark_events.config.quoting import scheme_and_host, with_short_urls
from spark_events.config.references import Secret, secret
from spark_events.config.settings import Option, Setting, Settings, invalid, option, options
from spark_events.config.value_kinds import (
    Kind,
    boolean,
    choice,
    duration,
    integer,
    is_name,
    names,
    number,
    path,
    positive_duration,
    size,
    text,
)

__all__ = [
    "Kind",
    "Option",
    "Secret",
    "Setting",
    "Settings",
    "boolean",
    "choice",
    "duration",
    "integer",
    "invalid",
    "is_name",
    "names",
    "number",
    "option",
    "options",
    "path",
    "positive_duration",
    "scheme_and_host",
    "secret",
    "size",
    "state_folder",
    "text",
    "with_short_urls",
]
