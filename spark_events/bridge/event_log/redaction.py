"""Redaction of a log's texts, as in the shim (``Redaction.java``)."""

from __future__ import annotations

import re
from collections.abc import Mapping

_SETTING = "spark.redaction.regex"
_SPARK_DEFAULT = "(?i)secret|password|token|access[.]?key"
_REPLACEMENT = "*********(redacted)"


class Redaction:
    """Redaction of texts with the application's pattern, applied to key and value.

    Spark redacts the properties in a log, including a pattern that matches its own text. If the pattern is unknown for
    this reason, or is invalid in Python, every text that Spark has not redacted is replaced.

    Args:
        properties: the Spark properties in the log.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        pattern = _compiled(properties.get(_SETTING, _SPARK_DEFAULT))
        self._matches_text = re.compile("").search if pattern is None else pattern.search
        # Spark has already redacted the properties of jobs. Redacted ids would hide the query or execution of a job.
        self._matches_property = (re.compile(_SPARK_DEFAULT, re.ASCII) if pattern is None else pattern).search
        self._name_is_redacted = properties.get("spark.app.name") == _REPLACEMENT

    def text(self, key: str, value: str) -> str:
        """Return a description or a line of a plan, or the replacement."""
        return _REPLACEMENT if self._matches_text(key) or self._matches_text(value) else value

    def job_property(self, key: str, value: str) -> str:
        """Return the value of a local property, or the replacement."""
        return _REPLACEMENT if self._matches_property(key) or self._matches_property(value) else value

    def application_name(self, name: str) -> str:
        """Return the application's name, or the replacement.

        Spark redacts the name only among the properties.
        """
        return _REPLACEMENT if self._name_is_redacted else self.job_property("spark.app.name", name)


def _compiled(regex: str) -> re.Pattern[str] | None:
    try:
        # Java's classes and case folding are ASCII by default.
        return None if regex == _REPLACEMENT else re.compile(regex, re.ASCII)
    except re.error:
        return None
