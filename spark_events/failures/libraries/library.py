"""The form of an entry of the registry."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from spark_events.failures.kinds import ErrorKind
from spark_events.failures.libraries.codes import by_sql_state, table

__all__ = ["Library", "attribute"]


def attribute(*names: str) -> Callable[[Any], object]:
    """Return a function that returns the first of these attributes that an exception has."""
    return lambda error: next((value for name in names if (value := getattr(error, name, None)) is not None), None)


@dataclasses.dataclass(frozen=True)
class Library:
    """A client library, or a part of Python or Java: its errors and their kinds.

    An exception is compared in this order: its code, words of its message, the HTTP status, its class and its base
    classes. Only the types in ``coded`` (and their subclasses) have a code or a decisive message; empty: all types.

    Attributes:
        modules: top-level packages of the library; for Java, packages. Separated by spaces.
        types: kinds by class name; several names in one key are separated by spaces. A base class suffices for
            exception objects. Printed exceptions do not contain base classes, so list the usual subclasses as well.
        codes: kinds by code, for example an SQLSTATE, a number or the name of an AWS error.
        code_of: returns the code of an exception object, or None.
        code_in: finds the code in a printed message, in its first group that matches.
        messages: pairs of a pattern and a kind, for errors without a code; the first match decides.
        coded: names of the types that have codes or decisive messages, separated by spaces.
        other: the kind of a coded type whose code and message are not listed.
        sql: whether codes that are not listed are SQLSTATEs.
        http: whether the message of an error contains the HTTP status.
    """

    modules: str
    types: Mapping[str, ErrorKind] = dataclasses.field(default_factory=dict)
    codes: Mapping[str, ErrorKind] = dataclasses.field(default_factory=dict)
    code_of: Callable[[Any], object] | None = None
    code_in: str = ""
    messages: Sequence[tuple[str, ErrorKind]] = ()
    coded: str = ""
    other: ErrorKind | None = None
    sql: bool = False
    http: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "types", table(dict(self.types)))
        object.__setattr__(self, "codes", table(dict(self.codes)))

    def has_code(self, name: str) -> bool:
        """Return whether a type of this library has a code or a decisive message."""
        return not self.coded or name in self.coded.split()

    def by_code(self, code: object) -> ErrorKind | None:
        """Return the kind of a code, or None if the code is not listed."""
        if code is None:
            return None
        return self.codes.get(str(code)) or (by_sql_state(str(code)) if self.sql else None)

    def by_message(self, message: str) -> ErrorKind | None:
        """Return the kind by words of a message, or None."""
        return next((kind for pattern, kind in self.messages if re.search(pattern, message)), None)

    def code_from(self, message: str) -> str | None:
        """Return the code in a printed message, or None."""
        found = re.search(self.code_in, message) if self.code_in else None
        return None if found is None else next((group for group in found.groups() if group), None)
