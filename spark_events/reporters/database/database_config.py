"""Settings of the reporter ``database``."""

from __future__ import annotations

import dataclasses
import re
from typing import ClassVar

from spark_events.config import Kind, Secret, option, positive_duration, secret

_ALLOWED = "sqlite:///<path of a file> or postgresql://<user>@<host>:<port>/<database>"


def _parse(value: str) -> Secret:
    scheme, separator, rest = value.partition("://")
    if not separator:
        raise ValueError
    if scheme == "sqlite":
        if not re.fullmatch(r"/[^?]+(\?.*)?", rest) or rest == "/:memory:":
            raise ValueError
    elif scheme in {"postgresql", "postgres", "postgresql+psycopg"}:
        value = f"postgresql+psycopg://{rest}"
    else:
        raise ValueError
    return Secret(value)


#: A URL in SQLAlchemy's format. Confidential, because it may contain a password.
database_url: Kind[Secret] = Kind(_ALLOWED, _parse, Secret.reveal, True)


@dataclasses.dataclass(frozen=True, slots=True)
class DatabaseConfig:
    """Settings below ``events.reporter.<name>.`` for type ``database``.

    Attributes:
        remembers_runs: whether a later run of the application can read this run's events from the destination.
    """

    remembers_runs: ClassVar[bool] = True

    url: Secret = option(
        "url",
        database_url,
        Secret("sqlite:///spark-events.db"),
        doc="Address of the database: a SQLite file, or PostgreSQL.",
    )
    password: Secret | None = option("password", secret, None, doc="PostgreSQL's password, if the URL has none.")
    timeout: float = option(
        "timeout",
        positive_duration,
        10.0,
        doc="Timeout of one attempt, as for every reporter; also the timeout of one statement.",
    )
    retention: float | None = option(
        "retention",
        positive_duration,
        None,
        doc="Delete events that are older than this, once an hour. If unset, keep all events.",
    )
