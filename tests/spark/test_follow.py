"""Test of following a rolling event log while Spark writes it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from unit.follow.test_follower import Collected, expected

from spark_events.follow.follower import FollowConfig, Follower
from spark_events.follow.positions import PositionFile
from spark_events.translate.translation_config import TranslateConfig

pytestmark = [pytest.mark.spark]

_PROGRAM = """
import sys
from pyspark.sql import SparkSession
settings = {"eventLog.enabled": "true", "eventLog.dir": sys.argv[1], "eventLog.rolling.enabled": "true",
    "eventLog.rolling.maxFileSize": "10m", "ui.enabled": "false"}
builder = SparkSession.builder.master("local[2]").appName("followed")
for key, value in settings.items():
    builder = builder.config(f"spark.{key}", value)
spark = builder.getOrCreate()
for number in range(20):
    spark.range(100).repartition(4).count()
try:
    spark.sql("SELECT raise_error('no stock')").collect()
except Exception as error:
    print(type(error))
spark.stop()
"""


def test_a_log_that_spark_writes_yields_each_event_once(tmp_path: Path) -> None:
    """A look at any moment, each by a new follower as after a kill, gives together the events of a replay."""
    logs = tmp_path / "logs"
    logs.mkdir()
    (tmp_path / "stdout").touch()
    destination, notes = Collected(), list[str]()

    def look() -> None:
        positions = PositionFile(tmp_path / "positions")
        Follower(logs, TranslateConfig(), FollowConfig(), positions, destination, notes.append).look()

    look()
    looks = 0
    with (
        (tmp_path / "stdout").open("wb") as output,
        subprocess.Popen([sys.executable, "-c", _PROGRAM, logs.as_uri()], stdout=output, stderr=output) as process,
    ):
        while process.poll() is None:
            look()
            looks += 1
    assert process.returncode == 0, (tmp_path / "stdout").read_text()
    look()
    assert looks > 1
    assert destination.ids == expected(logs)
    assert destination.alarms == destination.events
    assert any(event.name == "JobFailureEvent" for event in destination.events)
    assert notes == []
