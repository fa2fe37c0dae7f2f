"""Tags of jobs: those of the program, and those by which Spark Connect marks the work of its clients.

Spark writes all tags of a job into one local property, separated by commas:

- ``nightly``: of ``SparkContext.addJobTag``
- ``spark-session-<uuid>``, ``spark-session-<uuid>-thread-<uuid>-nightly``: of ``SparkSession.addTag``
- ``SparkConnect_OperationTag_User_ada_Session_<uuid>_Operation_<uuid>``: of an operation of a client
- ``SparkConnect_SessionTag_User_ada_Session_<uuid>_Tag_nightly``: of a client's ``addTag``
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

import msgspec

from spark_events.event import AttributeValue

__all__ = ["JobTags", "job_tags"]

_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_OPERATION = re.compile(rf"SparkConnect_OperationTag_User_(.*)_Session_({_UUID})_Operation_({_UUID})", re.DOTALL)
_OF_CLIENT = re.compile(rf"SparkConnect_SessionTag_User_.*?_Session_{_UUID}_Tag_(.+)", re.DOTALL)
_OF_SESSION = re.compile(rf"spark-session-({_UUID})(?:-thread-{_UUID}-(.+)|-execution-root-id-\d+)?", re.DOTALL)


class JobTags(NamedTuple):
    """What the tags of a job say.

    Attributes:
        attributes: the attributes of the job's events; do not change this dictionary.
        session: id of the session in the driver; "" if unknown.
    """

    attributes: dict[str, AttributeValue]
    session: str = ""


@functools.lru_cache(maxsize=256)
def job_tags(text: str) -> JobTags:
    """Return what the local property ``spark.job.tags`` says.

    The result is cached, because all jobs of one operation have the same tags.

    >>> job_tags("nightly,spark-session-0196f3a2-7c1e-7d3b-9c39-2f6a3d1b7a10").attributes
    {'spark.job.tags': '["nightly"]'}
    """
    own: dict[str, None] = {}
    attributes: dict[str, AttributeValue] = {}
    session = ""
    for tag in filter(None, text.split(",")):
        if found := _OPERATION.fullmatch(tag):
            user, of_client, operation = found.groups()
            attributes["spark.connect.user_id"] = user
            attributes["spark.connect.session_id"] = of_client
            attributes["spark.connect.operation_id"] = operation
        elif found := _OF_CLIENT.fullmatch(tag):
            own[found[1]] = None
        elif found := _OF_SESSION.fullmatch(tag):
            session = found[1]
            if found[2]:
                own[found[2]] = None
        else:
            own[tag] = None
    if own:
        attributes["spark.job.tags"] = msgspec.json.encode(list(own)).decode()
    return JobTags(attributes, session)
