"""Tests that the events of a real run equal the events that a replay creates from its event log."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from spark.harness import PATIENT, Lab, Run, file_reporter, spark_version, two_lines

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

#: Forms of the event log. The Spark version determines which form is the default.
LOGS = {
    "plain": {"spark.eventLog.rolling.enabled": "false", "spark.eventLog.compress": "false"},
    "rolling-zstd": {
        "spark.eventLog.rolling.enabled": "true",
        "spark.eventLog.compress": "true",
        "spark.eventLog.compression.codec": "zstd",
    },
}
#: Settings that enable all kinds of events, because the tests compare all kinds.
EVERYTHING = {
    "events.streaming-jobs.enabled": "true",
    "events.streaming-stages.enabled": "true",
    # Hold back no event in the replay, as in the live run, where Spark waits for the reporter.
    "events.incident.settle": "0ms",
}

# Data that only live events contain; docs/replay.md has the same list. The event log contains neither the reason nor
# the outcome of an application's end.
END = {
    "event_id",
    "body",
    "severity",
    "spark.status.new",
    "spark.app.end_reason",
    "spark.app.exit_code",
    "incident.key",
    "incident.role",
    "incident.more_keys",
    "spark.app.outcome_hint",
}
#: The event log contains no heartbeats of executors.
SUMMARY = {
    f"spark.summary.peak_{who}_{memory}_bytes"
    for who in ("driver", "executor")
    for memory in ("heap", "offheap", "python")
}
#: Spark's query termination event has no timestamp.
TERMINATED = {"observed_ts_millis"}
#: In the event log, a job's exception contains neither frames of the calling thread nor module names.
JOB_FAILURE = {"exception.stacktrace", "failure.stacktrace_cut"}


@pytest.fixture(scope="module")
def runs(lab: Lab) -> dict[str, Future[Run]]:
    """Run the catalogue job once for each form of the event log."""
    return {name: lab.background(_run, lab, conf) for name, conf in LOGS.items()}


def _run(lab: Lab, conf: dict[str, str]) -> Run:
    folder = lab.folder / f"log-{'-'.join(conf.values())}"
    folder.mkdir()
    log = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": str(folder), **conf}
    defaults = {**two_lines(), **PATIENT, **log, **EVERYTHING, **file_reporter(Path("{folder}/events.jsonl"))}
    run = lab.run("catalogue.py", defaults=defaults)
    folder.rename(run.folder / "eventlog")
    return run


@pytest.fixture(scope="module", params=LOGS)
def run(request: pytest.FixtureRequest, runs: dict[str, Future[Run]]) -> Run:
    """Return the finished job with one form of the event log."""
    found = runs[request.param].result()
    assert found.process.returncode == 0, found.tail()
    return found


def replay(
    run: Run, path: Path, *options: str, settings: Mapping[str, str] = EVERYTHING
) -> subprocess.CompletedProcess[str]:
    conf = run.folder / "replay.conf"
    conf.write_text("".join(f"{key} {value}\n" for key, value in settings.items()), encoding="utf-8")
    program = "import sys; from spark_events.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "replay", str(path), "--conf", str(conf), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


@pytest.fixture(scope="module")
def replayed(run: Run) -> list[dict[str, Any]]:
    """Return the events that a replay makes from the run's event log."""
    done = replay(run, run.folder / "eventlog")
    assert done.returncode == 0, done.stderr
    assert "damaged" not in done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def live_only_fields(event: dict[str, Any]) -> set[str]:
    """Return the fields and attributes in which the replay of an event may differ."""
    entity, says = event["attributes"].get("spark.entity"), event["attributes"]
    if event["name"] == "ApplicationSummaryEvent":
        return SUMMARY
    if entity == "application" and says.get("spark.status.new") != "RUNNING":
        return END
    if entity == "query" and says.get("spark.status.new") != "RUNNING":
        return TERMINATED
    if entity == "job" and event["name"] == "JobFailureEvent":
        return JOB_FAILURE
    return set()


def differences(live: dict[str, Any], again: dict[str, Any]) -> Iterator[str]:
    """Return the unexpected differences, by name, with the live and the replayed value."""
    flat = [{**event, **event["attributes"], "attributes": None} for event in (live, again)]
    for key in sorted(flat[0].keys() | flat[1].keys()):
        one, other = (event.get(key) for event in flat)
        if one != other and key not in live_only_fields(live):
            yield f"{live['name']} {live['attributes'].get('spark.entity')} {key}: {one!r} != {other!r}"


def of_the_run(run: Run) -> list[dict[str, Any]]:
    """Return the run's events without the dispatcher's events, which no Spark record causes."""
    return [event for event in run.events() if event["class_scope"] != "spark_events.dispatch"]


def test_the_log_has_the_expected_form(run: Run) -> None:
    """Control: the event log has the form that the test expects."""
    names = [path.name for path in (run.folder / "eventlog").rglob("*") if not path.name.startswith(".")]
    rolling = any(name.startswith("eventlog_v2_") for name in names)
    assert rolling == any(name.endswith(".zstd") for name in names)
    assert spark_version() >= (3, 5)


def test_a_replay_has_the_live_events_in_order(run: Run, replayed: list[dict[str, Any]]) -> None:
    """A replay creates the same events as the live run, in the same order."""
    live = of_the_run(run)
    assert [(event["name"], event["sequence"]) for event in replayed] == [(e["name"], e["sequence"]) for e in live]
    ids = [(e["event_id"], a["event_id"]) for e, a in zip(live, replayed, strict=True) if not live_only_fields(e) & END]
    assert [one for one, _ in ids] == [other for _, other in ids]
    # Control: the comparison includes every kind of event.
    assert {event["name"] for event in live} == {
        "JobStatusChangeEvent",
        "StageSummaryEvent",
        "ApplicationSummaryEvent",
        "JobFailureEvent",
        "BatchCommitEvent",
        "AllSubtasksStatusChangeEvent",
    }
    assert {event["attributes"].get("spark.entity") for event in live} >= {"application", "query", "job", "stage"}


def test_replayed_events_equal_live_events(run: Run, replayed: list[dict[str, Any]]) -> None:
    """Replayed events equal live events in all fields and attributes, except data that a log does not contain."""
    live = of_the_run(run)
    found = [text for one, other in zip(live, replayed, strict=True) for text in differences(one, other)]
    assert not found, "\n".join(found[:20])


def test_differences_are_small(run: Run, replayed: list[dict[str, Any]]) -> None:
    """In a replay, a query's end has a slightly earlier time, and a job's stack trace begins with the same line."""
    for live, again in zip(of_the_run(run), replayed, strict=True):
        if live_only_fields(live) == TERMINATED:
            assert 0 <= live["observed_ts_millis"] - again["observed_ts_millis"] < 10_000
        if live_only_fields(live) == JOB_FAILURE:
            traces = [event["attributes"]["exception.stacktrace"].splitlines()[0] for event in (live, again)]
            assert traces[0] == traces[1]


def test_the_replayed_end_is_ended(replayed: list[dict[str, Any]]) -> None:
    """A replayed application ends with status ENDED, because the event log does not contain its outcome."""
    (end,) = [e for e in replayed if e["attributes"].get("spark.entity") == "application" and e["sequence"] > 1]
    assert end["attributes"]["spark.status.new"] == "ENDED"
    assert end["attributes"]["spark.app.end_reason"] == "UNKNOWN"


def test_a_truncated_log_has_the_events_before_the_truncation(run: Run, replayed: list[dict[str, Any]]) -> None:
    """If a log is truncated within a line or a compressed block, the replay yields the events before the truncation."""
    files = [path for path in (run.folder / "eventlog").rglob("*local-*") if path.is_file()]
    (whole,) = [path for path in files if not path.name.startswith((".", "appstatus_"))]
    cut = run.folder / "cut-off"
    content = whole.read_bytes()
    cut.write_bytes(content[: len(content) * 2 // 3])
    done = replay(run, cut)
    assert done.returncode == 0, done.stderr
    assert "cut off" in done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert 0 < len(events) < len(replayed)
    assert events == replayed[: len(events)]


def test_a_replay_has_timer_events_before_a_query_s_end(lab: Lab) -> None:
    """If a query becomes idle and stops between two progress events, its replay contains the IDLE event."""
    settings = {"events.watermark.idle-timeout": "8s"}
    seldom = {"spark.sql.streaming.noDataProgressEventInterval": "2500"}
    log = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": "{folder}", **LOGS["plain"]}
    reporter = file_reporter(Path("{folder}/events.jsonl"), "async-queued")
    run = lab.run("silent.py", defaults={**two_lines(), **PATIENT, **settings, **seldom, **log, **reporter})
    assert run.process.returncode == 0, run.tail()
    (path,) = run.folder.glob("local-*")
    done = replay(run, path, "--name", "WatermarkStatusChangeEvent", settings=settings)
    assert done.returncode == 0, done.stderr
    live = run.named("WatermarkStatusChangeEvent")
    assert len(live) >= 2
    again = [json.loads(line) for line in done.stdout.splitlines()]
    assert [{**event, "sequence": 0} for event in again] == [{**event, "sequence": 0} for event in live]
