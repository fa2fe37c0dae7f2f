"""Tests of ``spark-events replay`` with arguments as users pass them."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest
from fakes import ROOT, event, sidecar_environment
from missing import missing
from reporters.peers.webhook import Receiver

from spark_events.cli import main
from spark_events.cli.sinks import JsonLines
from spark_events.event import encode_lines

FIXTURES = Path(__file__).parents[1] / "records" / "fixtures"
BATCH = FIXTURES / "batch_udf-4.3.jsonl"
STREAM = FIXTURES / "foreachbatch-4.3.jsonl"
COMMAND = [sys.executable, "-c", "import sys; from spark_events.cli import main; sys.exit(main())", "replay"]


class Replay:
    """Exit code, standard output and standard error of one call of the command."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *arguments: object) -> None:
        self.code = main(["replay", *map(str, arguments)])
        output = capsys.readouterr()
        self.events: list[dict[str, Any]] = [json.loads(line) for line in output.out.splitlines()]
        self.notes = output.err.splitlines()

    @property
    def names(self) -> list[str]:
        return [event["name"] for event in self.events]


def configuration(folder: Path, *lines: str) -> Path:
    path = folder / "spark-defaults.conf"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def file_reporter(path: Path, name: str = "audit") -> tuple[str, str]:
    return (f"events.reporter.{name}.type  file", f"events.reporter.{name}.path = {path}")


def events_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_events_are_printed_as_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """`replay` prints only events to standard output, and a summary line to standard error."""
    replay = Replay(capsys, STREAM)
    assert replay.code == 0
    assert replay.names == [
        "JobStatusChangeEvent",
        "JobStatusChangeEvent",
        "BatchCommitEvent",
        "JobStatusChangeEvent",
        "JobFailureEvent",
        "ApplicationSummaryEvent",
        "JobStatusChangeEvent",
    ]
    assert [event["sequence"] for event in replay.events] == [1, 2, 3, 4, 5, 6, 7]
    assert replay.events[0]["attributes"]["spark.version"] == "4.3.0"
    assert "bad foreachBatch value" in replay.events[4]["body"]
    assert replay.notes == ["spark-events: 1 log, 52 lines, 7 events"]


def test_each_log_is_a_separate_application(capsys: pytest.CaptureFixture[str]) -> None:
    """Each log is a separate application whose events are numbered from 1. A log that is passed twice is read once."""
    replay = Replay(capsys, BATCH, STREAM, BATCH)
    names = [event["attributes"]["spark.app.name"] for event in replay.events if event["sequence"] == 1]
    assert names == ["mat-batch_udf", "mat-foreachbatch"]
    assert replay.notes[-1].startswith("spark-events: 2 logs, ")


def test_a_folder_means_all_its_logs(capsys: pytest.CaptureFixture[str]) -> None:
    """A folder selects all event logs in it; other files are skipped without a note."""
    replay = Replay(capsys, FIXTURES)
    assert replay.code == 0
    assert len({(e["attributes"]["spark.app.name"], e["attributes"]["spark.app.id"]) for e in replay.events}) == 4
    assert not any("README" in note or ".py" in note for note in replay.notes)


def test_event_ids_are_the_same_in_every_replay(capsys: pytest.CaptureFixture[str]) -> None:
    """An event has the same event id in every replay, so a second replay into a database adds no row."""
    first, second = Replay(capsys, STREAM), Replay(capsys, STREAM)
    assert first.events == second.events
    assert len({event["event_id"] for event in first.events}) == len(first.events)


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["--min-severity", "error"], {"JobFailureEvent"}),
        (["--name", "BatchCommitEvent"], {"BatchCommitEvent"}),
        (["--name", "BatchCommitEvent", "--name", "JobFailureEvent"], {"BatchCommitEvent", "JobFailureEvent"}),
        (["--name", "BatchCommitEvent", "--min-severity", "WARN"], set()),
    ],
)
def test_an_event_must_pass_both_filters(
    capsys: pytest.CaptureFixture[str], options: list[str], names: set[str]
) -> None:
    replay = Replay(capsys, STREAM, *options)
    assert set(replay.names) == names
    assert replay.code == 0


@pytest.mark.parametrize("name", ["JobFailure", "jobfailureevent", "EventsDroppedEvent", ""])
def test_a_name_that_no_event_of_a_log_has_is_rejected(capsys: pytest.CaptureFixture[str], name: str) -> None:
    """A name that no event of a log can have is rejected, with a list of the allowed names."""
    with pytest.raises(SystemExit) as exited:
        main(["replay", str(STREAM), "--name", "JobFailureEvent", "--name", name])
    assert exited.value.code == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    _, _, allowed = shown.err.partition(f"argument --name: invalid choice: {name!r} (choose from ")
    assert re.findall(r"\w+", allowed) == [
        *("AllSubtasksStatusChangeEvent", "ApplicationSummaryEvent", "BatchCommitEvent", "DataWrittenEvent"),
        *("DeadlineStatusChangeEvent", "ExecutorStatusChangeEvent", "JobFailureEvent", "JobStatusChangeEvent"),
        *("StageSummaryEvent", "WatermarkStatusChangeEvent"),
    ]


def test_each_documented_event_of_a_replay_can_be_selected(capsys: pytest.CaptureFixture[str]) -> None:
    """`--name` accepts an event of docs/events/ if and only if docs/replay.md does not exclude this event."""
    pages = "".join(page.read_text("utf-8") for page in (ROOT / "docs" / "events").glob("*.md"))
    documented = re.findall("^## ([A-Z][A-Za-z]+Event)$", pages, re.M)
    rows = re.findall(r"^\| (.+) \| all \| never reported", (ROOT / "docs" / "replay.md").read_text("utf-8"), re.M)
    excluded = {name for row in rows for name in re.findall("`([A-Z][A-Za-z]+Event)`", row)}
    assert {"TestEvent", "EnrichmentEvent", "EventsDroppedEvent"} < excluded < set(documented)
    for name in set(documented) - excluded:
        assert Replay(capsys, STREAM, "--name", name).code == 0, name
    for name in excluded:
        with pytest.raises(SystemExit):
            main(["replay", str(STREAM), "--name", name])


def without_start(log: Path) -> Path:
    lines = STREAM.read_text(encoding="utf-8").splitlines(keepends=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("".join(one for one in lines if "ApplicationStart" not in one), encoding="utf-8")
    return log


def test_log_without_application_start_gets_an_application_id(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Without a start event, the application id comes from the log's name or first event. A note names this source."""
    app_id = Replay(capsys, STREAM).events[0]["attributes"]["spark.app.id"]
    named, other = without_start(tmp_path / app_id), without_start(tmp_path / "eventlog")
    replay = Replay(capsys, named)
    whole = Replay(capsys, STREAM).events
    assert [event["event_id"] for event in replay.events] == [event["event_id"] for event in whole[1:]]
    assert {event["attributes"]["spark.app.id"] for event in replay.events} == {app_id}
    assert replay.events[-1]["body"].startswith(f"Application '{app_id}' ended")
    missing = "the application's start is missing; its events have the application id"
    assert replay.notes[0] == f"spark-events: {named}: {missing} '{app_id}', from its name"
    replay = Replay(capsys, other)
    (made,) = {event["attributes"]["spark.app.id"] for event in replay.events}
    assert replay.notes[0] == f"spark-events: {other}: {missing} '{made}', from its first event"
    assert not {event["event_id"] for event in replay.events} & {event["event_id"] for event in whole}


def test_jobs_that_finish_without_a_start_are_counted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Jobs that finish without a start are only counted, unless jobs of micro-batches are reported."""
    log = tmp_path / "local-1"
    lines = STREAM.read_text(encoding="utf-8").splitlines(keepends=True)
    end = '{"Event":"SparkListenerJobEnd","Job ID":%d,"Completion Time":1,"Job Result":{"Result":"JobSucceeded"}}\n'
    log.write_text("".join([*lines[:-1], end % 101, end % 102, lines[-1]]), encoding="utf-8")
    replay = Replay(capsys, log)
    assert replay.names == Replay(capsys, STREAM).names
    assert replay.notes[-1].endswith(" 7 events; 2 finished jobs not reported because their start is missing")
    conf = configuration(tmp_path, "events.streaming-jobs.enabled true")
    replay = Replay(capsys, log, "--conf", conf)
    jobs = [event for event in replay.events if event["attributes"].get("spark.job.id", 0) > 100]
    assert [event["body"] for event in jobs] == [
        "mat-foreachbatch: job 101 finished",
        "mat-foreachbatch: job 102 finished",
    ]
    assert all("spark.status.old" not in event["attributes"] for event in jobs)
    assert "not reported" not in replay.notes[-1]


def test_settings_of_the_configuration_apply(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Translation settings apply even if the configuration contains no reporters."""
    conf = configuration(tmp_path, "events.streaming-stages.enabled true", "spark.master yarn")
    quiet, loud = Replay(capsys, STREAM), Replay(capsys, STREAM, "--conf", conf)
    assert "AllSubtasksStatusChangeEvent" not in quiet.names
    assert "AllSubtasksStatusChangeEvent" in loud.names


def test_events_go_to_the_configured_reporters(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """With `--conf`, the configured file reporter receives the events instead of standard output."""
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    conf = configuration(tmp_path, *file_reporter(one, "one"), *file_reporter(two, "two"))
    printed = Replay(capsys, STREAM)
    replay = Replay(capsys, STREAM, "--conf", conf)
    assert replay.code == 0
    assert replay.events == []
    assert events_of(one) == events_of(two) == printed.events


def test_to_selects_one_reporter(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `--to`, only the named reporter receives events. Without `--conf`, Spark's default configuration is used."""
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    configuration(tmp_path, *file_reporter(one, "one"), *file_reporter(two, "two"))
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert Replay(capsys, STREAM, "--to", "two").code == 0
    assert not one.exists()
    assert len(events_of(two)) == 7


def test_a_replay_leaves_out_reporters_that_notify_people(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """One line names them, and the other reporters receive the events."""
    out = tmp_path / "out.jsonl"
    with Receiver() as receiver:
        lines = [*slack(receiver.url, tmp_path), f"events.reporter.ping.url {receiver.url}"]
        conf = configuration(tmp_path, *file_reporter(out), *lines, "events.reporter.ping.type heartbeat")
        replay = Replay(capsys, BATCH, "--conf", conf)
        assert (replay.code, receiver.requests) == (0, [])
    said = [note for note in replay.notes if "notify" in note]
    assert said == ["spark-events: left out page, ping, which would notify people; pass --alerts to include them"]
    assert events_of(out)


def slack(url: str, folder: Path) -> list[str]:
    settings = {"type": "webhook", "format": "slack", "url": url, "alerts.directory": folder}
    return [f"events.reporter.page.{key} {value}" for key, value in settings.items()]


def test_alerts_of_a_replay_must_be_asked_for(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Without another reporter, a replay to a reporter that notifies people is wrong usage."""
    with Receiver() as receiver:
        conf = configuration(tmp_path, *slack(receiver.url, tmp_path))
        replay = Replay(capsys, BATCH, "--conf", conf, "--to", "page")
        assert (replay.code, receiver.requests) == (2, [])
        assert "no reporter remains, because page would notify people: pass --alerts" in replay.notes[-1]
        assert Replay(capsys, BATCH, "--conf", conf, "--to", "page", "--alerts").code == 0
        assert len(receiver.bodies()) == 1


def test_no_event_is_dropped_with_a_small_queue(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """No event is dropped even with a small queue, because a replay waits for its reporters."""
    log, out = tmp_path / "local-1", tmp_path / "out.jsonl"
    start, *rest = STREAM.read_text(encoding="utf-8").splitlines()
    commit = next(line for line in rest if "QueryProgressEvent" in line)
    batches = [commit.replace('"batchId":0', f'"batchId":{number}') for number in range(3_000)]
    log.write_text("\n".join([start, *batches, ""]), encoding="utf-8")
    conf = configuration(
        tmp_path, *file_reporter(out), "events.dispatcher.queue.size 1", "events.reporter.audit.batch.size 7"
    )
    assert Replay(capsys, log, "--conf", conf).code == 0
    numbers = [event["attributes"]["spark.batch.id"] for event in events_of(out)]
    assert numbers == list(range(3_000))


def test_undelivered_events_fail_the_replay(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """If no event is delivered for the time in `--patience`, the replay aborts and exits with 1."""
    conf = configuration(tmp_path, *file_reporter(tmp_path), "events.shutdown.timeout 100ms")
    replay = Replay(capsys, STREAM, "--conf", conf, "--patience", "200ms")
    assert replay.code == 1
    assert "7 events not delivered" in replay.notes[-1]
    assert any("aborted: reporter audit delivered no event for 0.2 s" in note for note in replay.notes)


def test_an_invalid_configuration_is_rejected(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The message about an invalid configuration contains the key, and no log is read."""
    conf = configuration(tmp_path, "events.streaming-stages.enabled maybe")
    replay = Replay(capsys, STREAM, "--conf", conf)
    assert replay.code == 1
    assert "events.streaming-stages.enabled: given 'maybe'" in replay.notes[0]
    replay = Replay(capsys, STREAM, "--conf", tmp_path / "nowhere.conf")
    assert replay.code == 1
    assert "cannot read" in replay.notes[0]


def test_an_unreadable_path_fails_only_its_replay(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The message about an unreadable path contains the path. All other logs are replayed."""
    (tmp_path / "empty").mkdir()
    text = tmp_path / "text"
    text.write_text("no event log\n", encoding="utf-8")
    replay = Replay(capsys, tmp_path / "nowhere", tmp_path / "empty", text, STREAM)
    assert replay.code == 1
    assert len(replay.events) == 7
    assert any(note.endswith("nowhere: No such file or directory") for note in replay.notes)
    assert any(note.endswith("empty: no event log in this folder") for note in replay.notes)
    assert any(note.endswith("text: not a Spark event log; skipped") for note in replay.notes)
    assert "3 paths that could not be read" in replay.notes[-1]


def test_an_unreadable_log_does_not_hide_the_other_logs_of_its_folder(tmp_path: Path) -> None:
    """The message contains the path of the log that cannot be read, and the folder's other logs are replayed."""
    locked = tmp_path / "eventlog_v2_app-1"
    locked.mkdir(mode=0)
    shutil.copy(STREAM, tmp_path)
    # Root may read every folder unless it gives up these capabilities.
    rights = "-dac_override,-dac_read_search"
    unprivileged = ["setpriv", f"--bounding-set={rights}", f"--inh-caps={rights}"] if os.geteuid() == 0 else []
    if unprivileged and shutil.which("setpriv") is None:
        missing("root can read every folder without setpriv")
    process = subprocess.run(
        [*unprivileged, *COMMAND, str(tmp_path)], check=False, capture_output=True, text=True, env=sidecar_environment()
    )
    assert process.returncode == 1
    assert len(process.stdout.splitlines()) == 7
    first, *_, last = process.stderr.splitlines()
    assert first == f"spark-events: cannot read {locked}: Permission denied"
    assert last.startswith("spark-events: 1 log, ")
    assert last.endswith("; 1 path that could not be read")


def test_damaged_lines_are_reported_and_do_not_fail_the_replay(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The first damaged lines are reported with file and line. Further damaged lines are only counted."""
    log = tmp_path / "local-1"
    lines = STREAM.read_text(encoding="utf-8").splitlines()
    log.write_text("\n".join([*lines[:10], *['{"Event":"Spark'] * 50, *lines[10:], ""]), encoding="utf-8")
    replay = Replay(capsys, log)
    assert replay.code == 0
    assert len(replay.events) == 7
    assert replay.notes[0] == f"spark-events: {log}:11: line skipped: incomplete"
    assert replay.notes[-2:] == [
        "spark-events: 30 further notes not shown",
        "spark-events: 1 log, 102 lines, 7 events; 50 damaged lines or blocks",
    ]


def test_events_of_other_programs_are_counted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The last line of the output contains the number of events that are not Spark's own."""
    log = tmp_path / "local-1"
    lines = [*STREAM.read_text(encoding="utf-8").splitlines(), *[json.dumps({"Event": "com.vendor.CostEvent"})] * 2]
    log.write_text("\n".join([*lines, ""]), encoding="utf-8")
    replay = Replay(capsys, log)
    assert replay.code == 0
    summary = "1 log, 54 lines, 7 events; 2 lines of events that are not Spark's own"
    assert replay.notes == [f"spark-events: {summary}"]


def test_log_in_progress_is_reported_as_such(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The application of a log in progress is not LOST, because it may still be running. Held events are reported."""
    log = tmp_path / "local-1.inprogress"
    lines = STREAM.read_text(encoding="utf-8").splitlines(keepends=True)
    cut = next(i for i, line in enumerate(lines) if "QueryProgressEvent" in line) + 1
    log.write_text("".join(lines[:cut]) + lines[cut][:60], encoding="utf-8")
    replay = Replay(capsys, log)
    assert replay.code == 0
    assert replay.names == ["JobStatusChangeEvent", "JobStatusChangeEvent", "BatchCommitEvent"]
    assert replay.notes == [
        f"spark-events: {log}:{cut + 1}: the file ends in the middle of this line",
        f"spark-events: {log}: the application's end is missing: still in progress",
        f"spark-events: 1 log, {cut} lines, 3 events; 1 file cut off",
    ]


def test_coalesced_commit_is_reported_at_the_end_of_an_unfinished_log(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """If a log is unfinished, the commits that min-interval holds are reported after its last line."""
    log = tmp_path / "local-1.inprogress"
    start, *rest = STREAM.read_text(encoding="utf-8").splitlines()
    commit = next(line for line in rest if "QueryProgressEvent" in line)
    batches = [commit.replace('"batchId":0', f'"batchId":{number}') for number in range(5)]
    log.write_text("\n".join([start, *batches, ""]), encoding="utf-8")
    conf = configuration(tmp_path, "events.batch-commit.min-interval 1h")
    replay = Replay(capsys, log, "--conf", conf)
    assert [event["attributes"]["spark.batch.count"] for event in replay.events] == [1, 4]


def test_compressed_logs(capsys: pytest.CaptureFixture[str]) -> None:
    """A compressed log yields the same events as the uncompressed log."""
    expected = Replay(capsys, BATCH).events
    for codec in ("zstd", "lz4", "snappy"):
        assert Replay(capsys, FIXTURES / f"batch_udf-4.3.{codec}").events == expected


def test_missing_library_is_reported_with_its_extra(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a library is missing, the command prints one line with the extra to install."""
    monkeypatch.setitem(sys.modules, "cramjam", None)
    replay = Replay(capsys, FIXTURES / "batch_udf-4.3.snappy")
    assert replay.code == 1
    assert "pip install 'spark-events[replay]'" in replay.notes[0]


def test_closed_pipe_ends_the_replay_without_an_error(tmp_path: Path) -> None:
    """`spark-events replay ... | head -1` prints no traceback."""
    log = tmp_path / "local-1"
    start, *rest = STREAM.read_text(encoding="utf-8").splitlines()
    commit = next(line for line in rest if "QueryProgressEvent" in line)
    batches = [commit.replace('"batchId":0', f'"batchId":{number}') for number in range(3_000)]
    log.write_text("\n".join([start, *batches, ""]), encoding="utf-8")
    with subprocess.Popen([*COMMAND, str(log)], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b'{"name":')
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()
        assert process.wait(30) == 0


class _Narrow(io.RawIOBase):
    """Stream that writes only a few bytes per call, as an unbuffered file may do."""

    def __init__(self) -> None:
        self.taken = b""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.taken += bytes(data[:7])
        return min(7, len(data))


def test_unbuffered_output_gets_every_byte() -> None:
    """An unbuffered stream that writes a few bytes per call, as with PYTHONUNBUFFERED, receives every byte."""
    stream = _Narrow()
    sink = JsonLines(cast(BinaryIO, stream))
    events = [event(n) for n in range(5)]
    sink.take(events)
    assert sink.close() == 0
    assert stream.taken == encode_lines(events)
