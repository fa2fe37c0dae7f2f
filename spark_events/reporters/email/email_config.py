"""Settings of the reporter ``email``."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from spark_events.config import (
    Kind,
    Secret,
    choice,
    duration,
    integer,
    option,
    path,
    positive_duration,
    secret,
    state_folder,
    text,
)
from spark_events.event import Severity
from spark_events.reporters.http.http_config import pem_file
from spark_events.reporters.reporter import severity, short_duration

_ADDRESS = re.compile(r"[^\s@,;<>\"]+@[^\s@,;<>\"]+")


def _addresses(value: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in value.split(","))
    if not all(_ADDRESS.fullmatch(part) for part in found):
        raise ValueError
    return found


def _address(value: str) -> str:
    (found,) = _addresses(value)
    return found


_ONE: Kind[str] = Kind("one e-mail address, such as spark@example.com", _address)
_SEVERAL: Kind[tuple[str, ...]] = Kind("e-mail addresses, separated by commas", _addresses, ", ".join)
#: Usual port of each kind of encryption.
_PORTS = {"starttls": 587, "tls": 465, "none": 25}


@dataclasses.dataclass(frozen=True, slots=True)
class EmailConfig:
    """Settings below ``events.reporter.<name>.`` for type ``email``."""

    host: str = option("host", text("the name of a mail server"), doc="Mail server.")
    sender: str = option("from", _ONE, doc="Address of the sender.")
    to: tuple[str, ...] = option("to", _SEVERAL, doc="Addresses of the receivers.")
    tls: str = option(
        "tls",
        choice(*_PORTS),
        "starttls",
        doc="Encryption: STARTTLS, TLS from the first byte, or none.",
    )
    port: int | None = option(
        "port", integer(1, 65_535), None, doc="Port; default: 587 for starttls, 465 for tls, 25 for none."
    )
    username: str | None = option("username", text("a user name"), None, doc="User name; unset: no login.")
    password: Secret | None = option("password", secret, None, doc="Password of the user.")
    tls_ca: str | None = option(
        "tls.ca", pem_file, None, doc="PEM file of the trusted certificate authorities; default: those of the system."
    )
    digest: float | None = option(
        "digest",
        positive_duration,
        None,
        doc="Send the other events that pass the filter in one e-mail per this time. If unset, they are not sent.",
    )
    group_wait: float = option(
        "group-wait",
        short_duration,
        5.0,
        doc="Time for which a failure waits for others, so that one message lists them all.",
    )
    cooldown: float = option(
        "cooldown", duration, 600.0, doc="Time after an e-mail during which further failures are only counted."
    )
    alerts_expire_after: float = option(
        "alerts.expire-after", positive_duration, 7 * 86_400.0, doc="Time after which an open alert is forgotten."
    )
    alerts_directory: str | None = option(
        "alerts.directory", path("the path of a directory"), None, doc="Directory of the open alerts."
    )
    min_severity: Severity | None = option(
        "filter.min-severity", severity, None, doc="Lowest severity; default: ERROR. Recoveries are always sent."
    )

    def __post_init__(self) -> None:
        if (self.username is None) is not (self.password is None):
            raise ValueError("username and password: one is set without the other; set both or none")
        if self.tls == "none" and self.password is not None:
            raise ValueError("password: set with tls=none, which would send it unencrypted; set tls")

    @property
    def used_port(self) -> int:
        """Port of the mail server."""
        return self.port or _PORTS[self.tls]

    @property
    def wants_recoveries(self) -> bool:
        """Whether the reporter receives events that close an alert, whatever their severity."""
        return True

    @property
    def least_severity(self) -> Severity:
        """Lowest severity of events to send; events that close an alert are exempt."""
        return self.min_severity or Severity.ERROR

    @property
    def folder(self) -> Path | None:
        """Directory of the open alerts; None without a home directory."""
        try:
            return Path(self.alerts_directory) if self.alerts_directory else state_folder() / "alerts"
        except RuntimeError:
            return None
