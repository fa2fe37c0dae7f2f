"""Recognise jobs and stages that were cancelled; the shim has the same rule (``Cancellation.java``)."""

from __future__ import annotations

import re

__all__ = ["is_cancellation"]

#: Messages of Spark's scheduler for work that ``stop()``, a user, a timeout or Spark itself cancels.
_CANCELLED = re.compile(r"\[SPARK_JOB_CANCELLED\]|Job \d+ cancelled|cancelled part of cancelled job group")


def is_cancellation(message: str) -> bool:
    """Return whether the message of a job's or stage's exception says that the work was cancelled.

    >>> is_cancellation("Job 3 cancelled part of cancelled job group 125ab4aa"), is_cancellation("Job aborted")
    (True, False)
    """
    return _CANCELLED.search(message.partition("\n")[0]) is not None
