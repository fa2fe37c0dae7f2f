"""Settings: parse strings under dotted keys into frozen dataclasses."""

from spark_events.config.folders import state_folder
from spark_events.config.kinds import (
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
from spark_events.config.references import Secret, secret, shown, without_password
from spark_events.config.settings import Option, Setting, Settings, option, options

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
    "is_name",
    "names",
    "number",
    "option",
    "options",
    "path",
    "positive_duration",
    "secret",
    "shown",
    "size",
    "state_folder",
    "text",
    "without_password",
]
