"""Redaction of secrets in a log's strings, with the rules of the shim (``Redaction.java``)."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

_SETTING = "spark.redaction.regex"
_SPARK_DEFAULT = "(?i)secret|password|token|access[.]?key"
_REPLACEMENT = "*********(redacted)"


class Redaction:
    """Redaction of strings with the application's pattern, which is matched against key and value.

    Spark redacts the properties in a log. If the pattern matches itself, Spark redacts it too, and the pattern is
    unknown. If the pattern is unknown or invalid in Python, this class replaces every string that Spark has not
    redacted.

    Args:
        properties: the Spark properties in the log.

    Attributes:
        job_property: returns the value of a local property, given its key and value; if it is sensitive, the
            replacement.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        pattern = _compiled(properties.get(_SETTING, _SPARK_DEFAULT))
        self._matches_text = re.compile("").search if pattern is None else pattern.search
        # Spark has already redacted the properties of jobs. Redacting an id as well would hide the job's query or
        # execution.
        self._matches_property = (re.compile(_SPARK_DEFAULT, re.ASCII) if pattern is None else pattern).search
        # The jobs and stages of an application have mostly the same properties.
        self.job_property = functools.lru_cache(maxsize=1_024)(self._job_property)
        self._name_is_redacted = properties.get("spark.app.name") == _REPLACEMENT

    def text(self, key: str, value: str) -> str:
        """Return a description or a line of a plan; if it is sensitive, the replacement."""
        return _REPLACEMENT if self._matches_text(key) or self._matches_text(value) else value

    def _job_property(self, key: str, value: str) -> str:
        return _REPLACEMENT if self._matches_property(key) or self._matches_property(value) else value

    def application_name(self, name: str) -> str:
        """Return the application's name; if it is sensitive, the replacement.

        Spark redacts the name only in the properties.
        """
        return _REPLACEMENT if self._name_is_redacted else self.job_property("spark.app.name", name)


def _compiled(regex: str) -> re.Pattern[str] | None:
    try:
        # By default, Java's character classes and case folding use only ASCII.
        return None if regex == _REPLACEMENT else re.compile(regex, re.ASCII)
    except re.error:
        return None
