"""Test of events in the driver's log, in the format of the log4j2 configuration."""

from __future__ import annotations

import re

import pytest
from spark.harness import PATIENT, Lab, two_lines

pytestmark = [pytest.mark.spark, pytest.mark.any_spark, pytest.mark.timeout(1800)]


def test_events_are_in_the_driver_s_log(lab: Lab) -> None:
    """Events in the driver's log have its time, level and layout, but another logger. The last event is included."""
    reporter = {"events.reporter.driver.type": "log", "events.reporter.driver.destination": "log4j"}
    run = lab.run("ending.py", defaults={**two_lines(), **PATIENT, **reporter})
    assert run.process.returncode == 0, run.tail()
    lines = [line for line in run.log.splitlines() if re.search(r" INFO Events: ", line)]
    reported = [line.partition(" INFO Events: ")[2] for line in lines]
    assert reported[0] == "JobStatusChangeEvent: Application 'ending' started"
    assert any(line.startswith("JobStatusChangeEvent: Application 'ending' finished") for line in reported)
    assert reported[-1].startswith("DispatcherReportEvent: ")
    assert run.own_messages == []
