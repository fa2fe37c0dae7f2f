"""Place of the record that caused a failure of data, as far as the failure names it; never the record itself."""

from __future__ import annotations

import re

from spark_events.event import AttributeValue

__all__ = ["place_of_data"]

_CLASSES = ("DATA_ERROR", "SCHEMA_MISMATCH", "USER_CODE")
_FILE = re.compile(r"[Ee]rror while reading file (\S.{0,1000}?)\.(?:\s|$)")
#: Kafka's messages about one record, and Spark's about records that are gone.
_RECORD = re.compile(
    r"[Rr]ecord(?: batch)? for partition (?P<name>[\w.-]{1,249})-(?P<number>\d{1,9}) at offset (?P<offset>\d{1,18})"
    r"|Record at topic (?P<topic>[\w.-]{1,249}) partition (?P<part>\d{1,9}) offset (?P<at>\d{1,18})"
    r"|Could not read records in offset \[(?P<start>\d{1,18}), \d{1,18}\) for topic partition"
    r" (?P<lost>[\w.-]{1,249})-(?P<gone>\d{1,9})"
)
_TASK = re.compile(r"\bTask (\d{1,9}) in stage \d+\.\d+ failed")


def place_of_data(failure_class: str, text: str) -> dict[str, AttributeValue]:
    """Return the attributes of the smallest place that a failure names.

    The place is a file or a Kafka record, and the partition of the failed task. Spark's exceptions contain no byte
    range of a file; only its log lines do.

    >>> place_of_data("DATA_ERROR", "Task 3 in stage 2.0 failed 4 times: Error while reading file /in/a.json. Details")
    {'failure.data.file': '/in/a.json', 'failure.data.partition': 3}
    """
    if failure_class not in _CLASSES:
        return {}
    found: dict[str, AttributeValue] = {}
    if file := _FILE.search(text):
        found["failure.data.file"] = file[1]
    if record := _RECORD.search(text):
        found["failure.data.topic"] = record["name"] or record["topic"] or record["lost"]
        found["failure.data.topic_partition"] = int(record["number"] or record["part"] or record["gone"])
        found["failure.data.offset"] = int(record["offset"] or record["at"] or record["start"])
    if task := _TASK.search(text):
        found["failure.data.partition"] = int(task[1])
    return found
