"""Codes that several libraries share: SQLSTATEs, HTTP statuses, gRPC codes and numbers of the operating system."""

from __future__ import annotations

import errno
import re

from spark_events.failures.kinds import (
    AGAIN,
    BROKEN,
    BUSY,
    CROWDED,
    DATA,
    DENIED,
    DOWN,
    FULL,
    GATEWAY,
    LOCAL_LIMIT,
    MISSING,
    MISTAKE,
    PYTHON_MEMORY,
    REJECTED,
    SCHEMA,
    SETUP,
    SILENT,
    SLOW,
    ErrorKind,
)  # fmt: skip

__all__ = ["GRPC_CODES", "by_errno", "by_sql_state", "by_status", "status_in", "table"]


def table(rows: dict[str, ErrorKind]) -> dict[str, ErrorKind]:
    """Return a table with one row per name, from rows whose keys contain several names.

    >>> table({"A B": DENIED}) == {"A": DENIED, "B": DENIED}
    True
    """
    return {name: kind for names, kind in rows.items() for name in names.split()}


#: Kinds by SQLSTATE, or by its class (two characters), of all SQL databases.
_SQL_STATES = table(
    {
        "08 57P01 57P02 57P03 57P05 25006 HYT00 HYT01": DOWN,
        "53300": CROWDED,
        "40 55P03": AGAIN,
        "57014": SLOW,
        "28 42501": DENIED,
        "3D000 3F000 42P01 42S02 02000": MISSING,
        "42703 42S22": SCHEMA,
        "22 23": DATA,
        "42601 42000 42": MISTAKE,
    }
)
GRPC_CODES = table(
    {
        "UNAVAILABLE": DOWN,
        "RESOURCE_EXHAUSTED": BUSY,
        "DEADLINE_EXCEEDED": SILENT,
        "ABORTED": AGAIN,
        "PERMISSION_DENIED UNAUTHENTICATED": DENIED,
        "NOT_FOUND": MISSING,
    }
)
#: Anthropic and others use 529 for an overloaded service.
_STATUSES = {
    **dict.fromkeys((401, 403, 407, 511), DENIED),
    408: SLOW,
    429: BUSY,
    503: CROWDED,
    504: GATEWAY,
    529: CROWDED,
}
_STATUS = re.compile(
    r"^(\d{3})(?: |, message=)|^\((\d{3})\)|^\w+\((\d{3}),"  # requests, aiohttp, urllib3, elasticsearch
    r"|(?:HTTP|Client|Server|Redirect) [Ee]rror '?(\d{3})\b|Error code: (\d{3})"  # urllib, httpx, openai
    r"|(?i:status(?:[ _]?code)?)\W{1,3}(\d{3})\b|HTTP(?:/1\.\d)? (?:response code: )?(\d{3})\b"  # AWS, Azure, Java
    r'|, (\d{3})$|"code": (\d{3}),|^\[HTTP (\d{3})|", (\d{3}), (?:GET|HEAD|PUT|POST|DELETE|PATCH),'  # Google, Azure
)
_ERRNOS = {
    **dict.fromkeys(
        (
            "EADDRNOTAVAIL", "ECONNABORTED", "ECONNREFUSED", "ECONNRESET", "EHOSTDOWN", "EHOSTUNREACH", "ENETDOWN",
            "ENETRESET", "ENETUNREACH", "ENOBUFS", "EPIPE", "ETIMEDOUT",
        ),
        DOWN,
    ),
    **dict.fromkeys(("EMFILE", "ENFILE"), LOCAL_LIMIT),
    **dict.fromkeys(("EACCES", "EPERM"), DENIED),
    **dict.fromkeys(("ENOENT", "ENOTDIR"), MISSING),
    **dict.fromkeys(("ENOSPC", "EDQUOT"), FULL),
    "ENOMEM": PYTHON_MEMORY,
    "EADDRINUSE": SETUP,
}  # fmt: skip
_BY_NUMBER = {getattr(errno, name): kind for name, kind in _ERRNOS.items() if hasattr(errno, name)}


def by_sql_state(state: str) -> ErrorKind | None:
    """Return the kind of an SQLSTATE of a database, or None.

    >>> by_sql_state("08006") is DOWN, by_sql_state("99999")
    (True, None)
    """
    return _SQL_STATES.get(state) or _SQL_STATES.get(state[:2])


def by_status(status: int) -> ErrorKind:
    """Return the kind of an HTTP status that is an error.

    >>> by_status(503) is CROWDED, by_status(500) is BROKEN, by_status(404) is REJECTED
    (True, True, True)
    """
    return _STATUSES.get(status, BROKEN if 500 <= status < 600 else REJECTED)


def status_in(message: str) -> int | None:
    """Return the HTTP status in a client's message, or None.

    >>> status_in("503 Server Error: Service Unavailable for url: https://api/x")
    503
    """
    found = _STATUS.search(message)
    number = None if found is None else next(int(group) for group in found.groups() if group)
    return number if number is not None and 100 <= number < 600 else None


def by_errno(number: object) -> ErrorKind | None:
    """Return the kind of an ``errno``, or None.

    >>> by_errno(13) is DENIED
    True
    """
    return _BY_NUMBER.get(number) if isinstance(number, int) else None
