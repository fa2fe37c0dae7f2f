"""Keys of incidents: equal for repeated failures of the same work, also after a restart of the application.

Grammar, where each part is percent-encoded and ``[…]`` may be missing::

    {name=value /}*  application  [/ query=… | / job=… | / reporter=…]  / kind

    environment=prod/clickstream/query=book-payments/failure
    clickstream/failure

The parts at the beginning are the identity of the installation (``spark.events.environment``), so that a run in one
environment never closes the incident of another. The kind of entity is part of the key, so that a query and a job group
of one name have different keys.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from spark_events.event import AttributeValue

__all__ = ["ENVIRONMENT", "FAILURE", "OVERDUE", "REPORTER", "TAG", "Keys", "is_generated"]

#: Attributes of all events: the environment, and the beginning of the names of tags.
ENVIRONMENT, TAG = "deployment.environment.name", "spark.tag."
#: Kinds of incidents.
FAILURE, OVERDUE, REPORTER = "failure", "overdue", "reporter"
#: Job group id that some servers generate for each statement.
_GENERATED = re.compile(r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}", re.IGNORECASE)
#: Characters that would make a key ambiguous or unreadable; other characters stay as they are.
_ENCODED = re.compile(r"[/=%]|[^\S ]|[\x00-\x1f\x7f]")


def is_generated(group: str) -> bool:
    """Return whether a job group's id is a generated UUID, which is different in each run."""
    return _GENERATED.search(group) is not None


class Keys:
    """Keys of the incidents of all applications with one identity.

    Args:
        identity: names of the attributes that identify the installation, such as ``deployment.environment.name``.

    >>> Keys().of({"spark.app.name": "shop", "spark.streaming.query.name": "a/b"}, "failure")
    'shop/query=a%2Fb/failure'
    """

    def __init__(self, identity: Sequence[str] = ()) -> None:
        self._identity = tuple(identity)

    def of(self, attributes: Mapping[str, AttributeValue], kind: str) -> str:
        """Return the key of the query or job group that the attributes name, else of the application."""
        return self._join(attributes, subject(attributes), kind)

    def of_application(self, attributes: Mapping[str, AttributeValue], kind: str = FAILURE) -> str:
        """Return the key of the application itself."""
        return self._join(attributes, "", kind)

    def of_query(self, attributes: Mapping[str, AttributeValue], query: str, kind: str = FAILURE) -> str:
        """Return the key of a query of the application."""
        return self._join(attributes, f"query={_part(query)}", kind)

    def of_job(self, attributes: Mapping[str, AttributeValue], job: str) -> str:
        """Return the key of the failures of a job group, or of jobs with one description."""
        return self._join(attributes, f"job={_part(job)}", FAILURE)

    def of_reporter(self, attributes: Mapping[str, AttributeValue]) -> str:
        """Return the key of a reporter's open circuit breaker."""
        return self._join(attributes, f"reporter={_part(attributes.get('spark.events.reporter.name', ''))}", REPORTER)

    def _join(self, attributes: Mapping[str, AttributeValue], of: str, kind: str) -> str:
        found = ((name, attributes.get(name)) for name in self._identity)
        identity = [f"{_short(name)}={_part(value)}" for name, value in found if value is not None]
        application = attributes.get("spark.app.name") or attributes.get("spark.app.id") or ""
        return "/".join(filter(None, (*identity, _part(application), of, kind)))


def subject(attributes: Mapping[str, AttributeValue]) -> str:
    """Return the part of a key that names the query or the job group; empty if there is neither."""
    if query := query_of(attributes):
        return f"query={_part(query)}"
    return f"job={_part(job)}" if (job := job_of(attributes)) else ""


def query_of(attributes: Mapping[str, AttributeValue]) -> str:
    """Return the query's name, or its id if it has no name; empty outside queries."""
    return str(attributes.get("spark.streaming.query.name") or attributes.get("spark.streaming.query.id") or "")


def job_of(attributes: Mapping[str, AttributeValue]) -> str:
    """Return the job's group or, without a group that is the same in each run, its description or call site.

    For the work of a Spark Connect client without a description, return the client's user.
    """
    group = str(attributes.get("spark.job.group", ""))
    if group and not is_generated(group):
        return group
    if (user := attributes.get("spark.connect.user_id")) is not None:
        # Spark's own description of the work of a client contains the session, which is different in each run.
        description = str(attributes.get("spark.job.description", ""))
        return str(user) if description.startswith("Spark Connect - ") or not description else description
    return str(attributes.get("spark.job.description") or attributes.get("spark.job.call_site") or "")


def _part(value: AttributeValue) -> str:
    return _ENCODED.sub(lambda found: quote(found[0], safe=""), str(value))


def _short(name: str) -> str:
    return "environment" if name == ENVIRONMENT else name.removeprefix(TAG)
