"""Add the events of all new and changed event logs to a Parquet folder.

    spark-submit examples/fleet.py s3a://lake/spark_events s3://bucket/spark-logs --days 7

Run it from a scheduler, one run at a time. The folder itself records which logs were read.
"""

from __future__ import annotations

import argparse
from datetime import timedelta

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from spark_events import replay_all


def written(spark: SparkSession, table: str) -> DataFrame | None:
    try:
        return spark.read.parquet(table)
    except AnalysisException as error:
        if "PATH_NOT_FOUND" in str(error):
            return None  # the first run
        raise


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", help="folder of the events, as a path of Spark")
    parser.add_argument("logs", help="folder of the event logs, as for spark-events replay")
    parser.add_argument("--days", type=float, help="read only logs that were changed in these last days")
    chosen = parser.parse_args()
    spark = SparkSession.builder.appName("fleet").getOrCreate()
    since = None if chosen.days is None else timedelta(days=chosen.days)
    events = replay_all(spark, chosen.logs, since=since, written=written(spark, chosen.table))
    # Readers skip the events of other names, most of which are commits.
    events.sortWithinPartitions("name", "observed_ts_millis").write.mode("append").parquet(chosen.table)
    spark.stop()


if __name__ == "__main__":
    main()
