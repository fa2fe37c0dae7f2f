"""Whether a settled batch may hold two results of one partition.

Spark has a partition computed twice at the same time by speculation, and when a stage is attempted anew (an executor is
lost, with what it held of a shuffle): it does not end the tasks of the attempt before. Both may store what they have
made, on two executors, and whoever reads takes either. For Spark they are the same; of calls to the outside world they
are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_events.enrich.spark.halting import Desk
    from spark_events.enrich.spark.report import Report

__all__ = ["may_be_double"]


def may_be_double(session: SparkSession, rdd: Any, copies: int, reports: Sequence[Report], desk: Desk | None) -> bool:
    """Asked when the job that stores is over; of a cluster, for in local mode a partition has one place to be in.

    That blocks are counted would not do: the older attempt may store its own later, or where a replica of the newer
    one's should have gone.

    Args:
        session: whose cluster it is.
        rdd: Java's, stored.
        copies: of every partition that there should be.
        reports: what its tasks have told.
        desk: where they have said which they are; not all may have reached it.
    """
    if desk is not None and desk.repeated:
        return True
    tracker = session.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in {report.stage for report in reports}]
    if any(stage is not None and stage.currentAttemptId > 0 for stage in stages):
        return True
    speculates = str(session.conf.get("spark.speculation", "false")).lower() == "true"
    if not speculates and None not in stages:
        return False
    try:
        return _most_blocks(session, rdd) > copies
    except Exception:
        # How it is asked is not a part of Spark that anybody has promised; a copy too many does no harm.
        return True


def _most_blocks(session: SparkSession, rdd: Any) -> int:
    """In how many places a partition is, at most: as it was when the latest job began, the one that read the reports.

    (That who knows it at any time, the ``BlockManager``, py4j cannot look at on Spark 4.3.)
    """
    scala: Any = session.sparkContext._jsc.sc()
    return max((scala.getPreferredLocs(rdd, part).size() for part in range(rdd.getNumPartitions())), default=0)
