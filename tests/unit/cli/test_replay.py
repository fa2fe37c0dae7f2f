"""``spark-events replay``, as a user meets it."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest
from fakes import event, eventually

from spark_events.cli import main
from spark_events.cli.outlets import JsonLines
from spark_events.event import encode_lines

FIXTURES = Path(__file__).parents[1] / "bridge" / "fixtures"
BATCH = FIXTURES / "batch_udf-4.3.jsonl"
STREAM = FIXTURES / "foreachbatch-4.3.jsonl"
COMMAND = [sys.executable, "-c", "import sys; from spark_events.cli import main; sys.exit(main())", "replay"]


class Replay:
    """One call, and what it has said."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *arguments: object) -> None:
        self.code = main(["replay", *map(str, arguments)])
        said = capsys.readouterr()
        self.events: list[dict[str, Any]] = [json.loads(line) for line in said.out.splitlines()]
        self.notes = said.err.splitlines()

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
    """Nothing but events on standard output; one line of account on standard error."""
    replay = Replay(capsys, STREAM)
    assert replay.code == 0
    assert replay.names == [
        "JobStatusChangeEvent",
        "JobStatusChangeEvent",
        "BatchCommitEvent",
        "JobStatusChangeEvent",
        "JobFailureEvent",
        "JobStatusChangeEvent",
    ]
    assert [event["sequence"] for event in replay.events] == [1, 2, 3, 4, 5, 6]
    assert replay.events[0]["attributes"]["spark.version"] == "4.3.0"
    assert "bad foreachBatch value" in replay.events[4]["body"]
    assert replay.notes == ["spark-events: 1 log, 52 lines, 6 events"]


def test_several_logs_are_applications_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    """Each is numbered from 1 and names its application; a log that is named twice is read once."""
    replay = Replay(capsys, BATCH, STREAM, BATCH)
    names = [event["attributes"]["spark.app.name"] for event in replay.events if event["sequence"] == 1]
    assert names == ["mat-batch_udf", "mat-foreachbatch"]
    assert replay.notes[-1].startswith("spark-events: 2 logs, ")


def test_a_folder_is_its_logs(capsys: pytest.CaptureFixture[str]) -> None:
    """What is no event log is passed over without a word: a folder may hold anything."""
    replay = Replay(capsys, FIXTURES)
    assert replay.code == 0
    assert len({(e["attributes"]["spark.app.name"], e["attributes"]["spark.app.id"]) for e in replay.events}) == 4
    assert not any("README" in note or ".py" in note for note in replay.notes)


def test_identifiers_do_not_depend_on_the_replay(capsys: pytest.CaptureFixture[str]) -> None:
    """The same fact has the same identifier, so that a second replay into a database adds nothing."""
    first, second = Replay(capsys, STREAM), Replay(capsys, STREAM)
    assert first.events == second.events
    assert len({event["event_id"] for event in first.events}) == len(first.events)


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["--min-severity", "error"], {"JobStatusChangeEvent", "JobFailureEvent"}),
        (["--name", "BatchCommitEvent"], {"BatchCommitEvent"}),
        (["--name", "BatchCommitEvent", "--name", "JobFailureEvent"], {"BatchCommitEvent", "JobFailureEvent"}),
        (["--name", "BatchCommitEvent", "--min-severity", "WARN"], set()),
    ],
)
def test_filters(capsys: pytest.CaptureFixture[str], options: list[str], names: set[str]) -> None:
    """By severity and by name; both must hold."""
    replay = Replay(capsys, STREAM, *options)
    assert set(replay.names) == names
    assert replay.code == 0


@pytest.mark.parametrize("name", ["JobFailure", "jobfailureevent", "EventsDroppedEvent", ""])
def test_a_name_that_no_event_of_a_log_has_is_refused(capsys: pytest.CaptureFixture[str], name: str) -> None:
    """Instead of a replay without events; the message has the names there are."""
    replay = Replay(capsys, STREAM, "--name", "JobFailureEvent", "--name", name)
    assert (replay.code, replay.events) == (2, [])
    assert replay.notes == [
        f"spark-events: --name: given {name!r}, allowed are AllSubtasksStatusChangeEvent, BatchCommitEvent,"
        " JobFailureEvent, JobStatusChangeEvent, WatermarkStatusChangeEvent"
    ]


def without_start(log: Path) -> Path:
    lines = STREAM.read_text(encoding="utf-8").splitlines(keepends=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("".join(one for one in lines if "ApplicationStart" not in one), encoding="utf-8")
    return log


def test_a_log_without_the_application_s_start_has_an_application_of_its_own(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """By its name, with the identifiers of the live run; or by its first event. Both are said."""
    app_id = Replay(capsys, STREAM).events[0]["attributes"]["spark.app.id"]
    named, other = without_start(tmp_path / app_id), without_start(tmp_path / "eventlog")
    replay = Replay(capsys, named)
    whole = Replay(capsys, STREAM).events
    assert [event["event_id"] for event in replay.events] == [event["event_id"] for event in whole[1:]]
    assert {event["attributes"]["spark.app.id"] for event in replay.events} == {app_id}
    assert replay.events[-1]["body"].startswith(f"Application '{app_id}' ended")
    missing = "the application's start is not in it: its events have the application id"
    assert replay.notes[0] == f"spark-events: {named}: {missing} '{app_id}', from its name"
    replay = Replay(capsys, other)
    (made,) = {event["attributes"]["spark.app.id"] for event in replay.events}
    assert replay.notes[0] == f"spark-events: {other}: {missing} '{made}', from its first event"
    assert not {event["event_id"] for event in replay.events} & {event["event_id"] for event in whole}


def test_jobs_that_finish_without_a_start_are_counted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """They may be of micro-batches, which are not reported; where these are, so are they."""
    log = tmp_path / "local-1"
    lines = STREAM.read_text(encoding="utf-8").splitlines(keepends=True)
    end = '{"Event":"SparkListenerJobEnd","Job ID":%d,"Completion Time":1,"Job Result":{"Result":"JobSucceeded"}}\n'
    log.write_text("".join([*lines[:-1], end % 101, end % 102, lines[-1]]), encoding="utf-8")
    replay = Replay(capsys, log)
    assert replay.names == Replay(capsys, STREAM).names
    assert replay.notes[-1].endswith(" 6 events; 2 finished jobs not reported, because the start is missing")
    conf = configuration(tmp_path, "events.streaming-jobs.enabled true")
    replay = Replay(capsys, log, "--conf", conf)
    told = [event for event in replay.events if event["attributes"].get("spark.job.id", 0) > 100]
    assert [event["body"] for event in told] == ["Job 101 finished", "Job 102 finished"]
    assert all("status.old" not in event["attributes"] for event in told)
    assert "not reported" not in replay.notes[-1]


def test_streaming_events_of_spark_2_0_are_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The last line says how many were not translated."""
    log = tmp_path / "local-1"
    kind = "org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgress"
    lines = [*BATCH.read_text(encoding="utf-8").splitlines(), json.dumps({"Event": kind, "queryInfo": {}})]
    log.write_text("\n".join([*lines, ""]), encoding="utf-8")
    assert Replay(capsys, log).notes[-1].endswith("; 1 streaming event of Spark 2.0, not translated")


def test_the_settings_of_a_configuration_hold(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Without reporters in it, events are printed, translated as it says."""
    conf = configuration(tmp_path, "events.streaming-stages.enabled true", "spark.master yarn")
    quiet, loud = Replay(capsys, STREAM), Replay(capsys, STREAM, "--conf", conf)
    assert "AllSubtasksStatusChangeEvent" not in quiet.names
    assert "AllSubtasksStatusChangeEvent" in loud.names


def test_events_go_to_the_configured_reporters(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """All of them, in full, in the form that is printed otherwise."""
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    conf = configuration(tmp_path, *file_reporter(one, "one"), *file_reporter(two, "two"))
    printed = Replay(capsys, STREAM)
    replay = Replay(capsys, STREAM, "--conf", conf)
    assert replay.code == 0
    assert replay.events == []
    assert events_of(one) == events_of(two) == printed.events


def test_to_names_one_reporter(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others get nothing; without --conf it is one of Spark's own configuration."""
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    configuration(tmp_path, *file_reporter(one, "one"), *file_reporter(two, "two"))
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert Replay(capsys, STREAM, "--to", "two").code == 0
    assert not one.exists()
    assert len(events_of(two)) == 6


def test_nothing_is_dropped_however_small_the_queue(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A replay has time: it waits for its reporters, and the dispatcher's settings are the driver's, not its own."""
    log, out = tmp_path / "local-1", tmp_path / "out.jsonl"
    start, *rest = STREAM.read_text(encoding="utf-8").splitlines()
    commit = next(line for line in rest if "QueryProgressEvent" in line)
    batches = [commit.replace('"batchId":0', f'"batchId":{number}') for number in range(3_000)]
    log.write_text("\n".join([start, *batches, ""]), encoding="utf-8")
    conf = configuration(
        tmp_path, *file_reporter(out), "events.dispatcher.queue.size 1", "events.reporter.audit.batch.size 7"
    )
    assert Replay(capsys, log, "--conf", conf).code == 0
    numbers = [event["attributes"]["spark.streaming.batch.id"] for event in events_of(out)]
    assert numbers == list(range(3_000))


def test_events_that_cannot_be_delivered_are_a_failure(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A reporter that takes nothing is given up after a while; the exit code says so."""
    conf = configuration(tmp_path, *file_reporter(tmp_path), "events.shutdown.timeout 100ms")
    replay = Replay(capsys, STREAM, "--conf", conf, "--patience", "0.2")
    assert replay.code == 1
    assert "6 events not delivered" in replay.notes[-1]


def test_a_configuration_that_is_wrong_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """With the key, before anything is read."""
    conf = configuration(tmp_path, "events.streaming-stages.enabled maybe")
    replay = Replay(capsys, STREAM, "--conf", conf)
    assert replay.code == 1
    assert "events.streaming-stages.enabled: given 'maybe'" in replay.notes[0]
    replay = Replay(capsys, STREAM, "--conf", tmp_path / "nowhere.conf")
    assert replay.code == 1
    assert "cannot read" in replay.notes[0]


def test_a_path_that_cannot_be_read_is_a_failure_and_no_obstacle(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """It is named; the others are replayed."""
    (tmp_path / "empty").mkdir()
    text = tmp_path / "text"
    text.write_text("no event log\n", encoding="utf-8")
    replay = Replay(capsys, tmp_path / "nowhere", tmp_path / "empty", text, STREAM)
    assert replay.code == 1
    assert len(replay.events) == 6
    assert any(note.endswith("nowhere: No such file or directory") for note in replay.notes)
    assert any(note.endswith("empty: there is no event log in this folder") for note in replay.notes)
    assert any(note.endswith("text: it is no event log of Spark") for note in replay.notes)
    assert "3 paths that could not be read" in replay.notes[-1]


def test_damaged_lines_are_named_and_counted_and_no_failure(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The first of them with file and line, the others as a number."""
    log = tmp_path / "local-1"
    lines = STREAM.read_text(encoding="utf-8").splitlines()
    log.write_text("\n".join([*lines[:10], *['{"Event":"Spark'] * 50, *lines[10:], ""]), encoding="utf-8")
    replay = Replay(capsys, log)
    assert replay.code == 0
    assert len(replay.events) == 6
    assert replay.notes[0] == f"spark-events: {log}:11: the line has no end"
    assert replay.notes[-2:] == [
        "spark-events: ... and 30 more of these",
        "spark-events: 1 log, 102 lines, 6 events; 50 damaged lines or blocks",
    ]


def test_unknown_kinds_are_named_shortly(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Whatever a log has in their place: no megabytes, and nothing that steers a terminal."""
    log = tmp_path / "local-1"
    kinds = ["k" * 1_000_000, "com.vendor.\x1b[2JEvent"]
    lines = [*STREAM.read_text(encoding="utf-8").splitlines(), *(json.dumps({"Event": kind}) for kind in kinds)]
    log.write_text("\n".join([*lines, ""]), encoding="utf-8")
    replay = Replay(capsys, log)
    assert replay.code == 0
    named = rf"com.vendor.\x1b[2JEvent, {'k' * 100}… (cut)"
    assert replay.notes == [f"spark-events: 1 log, 54 lines, 6 events; 2 lines of unknown kinds ({named})"]


def test_a_log_in_progress_says_so_and_nothing_is_lost(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The application is not said to be LOST, for it may well be running; what was held back is told."""
    log = tmp_path / "local-1.inprogress"
    lines = STREAM.read_text(encoding="utf-8").splitlines(keepends=True)
    cut = next(i for i, line in enumerate(lines) if "QueryProgressEvent" in line) + 1
    log.write_text("".join(lines[:cut]) + lines[cut][:60], encoding="utf-8")
    replay = Replay(capsys, log)
    assert replay.code == 0
    assert replay.names == ["JobStatusChangeEvent", "JobStatusChangeEvent", "BatchCommitEvent"]
    assert replay.notes == [
        f"spark-events: {log}:{cut + 1}: cut off in the middle of the line",
        f"spark-events: {log}: the application's end is not in it: it is still in progress",
        f"spark-events: 1 log, {cut} lines, 3 events; 1 file cut off",
    ]


def test_a_coalesced_commit_is_told_at_the_end_of_an_unfinished_log(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """What min-interval holds back does not vanish with the end of the file."""
    log = tmp_path / "local-1.inprogress"
    start, *rest = STREAM.read_text(encoding="utf-8").splitlines()
    commit = next(line for line in rest if "QueryProgressEvent" in line)
    batches = [commit.replace('"batchId":0', f'"batchId":{number}') for number in range(5)]
    log.write_text("\n".join([start, *batches, ""]), encoding="utf-8")
    conf = configuration(tmp_path, "events.batch-commit.min-interval 1h")
    replay = Replay(capsys, log, "--conf", conf)
    assert [event["attributes"]["batches"] for event in replay.events] == [1, 4]


def test_compressed_logs(capsys: pytest.CaptureFixture[str]) -> None:
    """The events are those of the text."""
    expected = Replay(capsys, BATCH).events
    for codec in ("zstd", "lz4", "snappy"):
        assert Replay(capsys, FIXTURES / f"batch_udf-4.3.{codec}").events == expected


def test_a_missing_library_is_a_failure_that_names_the_extra(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line that says what to install."""
    monkeypatch.setitem(sys.modules, "cramjam", None)
    replay = Replay(capsys, FIXTURES / "batch_udf-4.3.snappy")
    assert replay.code == 1
    assert "pip install 'spark-events[replay]'" in replay.notes[0]


def test_a_reader_that_has_seen_enough_ends_it_quietly(tmp_path: Path) -> None:
    """`spark-events replay ... | head -1` leaves no trace on standard error but its own."""
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


def test_on_a_terminal_there_is_a_bar(tmp_path: Path) -> None:
    """On standard error, with what has been read; it is gone at the end, and standard output is untouched."""
    leader, follower = pty.openpty()
    out = tmp_path / "out"
    with out.open("wb") as stdout:
        process = subprocess.Popen([*COMMAND, str(STREAM)], stdout=stdout, stderr=follower)
    os.close(follower)
    said = b""

    def all_said() -> bool:
        nonlocal said
        try:
            said += os.read(leader, 65_536)
        except OSError:
            return True
        return False

    eventually(all_said)
    os.close(leader)
    assert process.wait(30) == 0
    assert b"MB" in said
    assert b"%" in said
    assert said.rstrip().split(b"\033[K")[-1].startswith(b"spark-events: 1 log")
    assert len(out.read_bytes().splitlines()) == 6


class _Narrow(io.RawIOBase):
    """Takes a few bytes at a time, as a file without a buffer may."""

    def __init__(self) -> None:
        self.taken = b""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.taken += bytes(data[:7])
        return min(7, len(data))


def test_an_output_without_a_buffer_gets_every_byte() -> None:
    """Python's own, where PYTHONUNBUFFERED is set."""
    stream = _Narrow()
    outlet = JsonLines(cast(BinaryIO, stream))
    events = [event(n) for n in range(5)]
    outlet.take(events)
    assert outlet.close() == 0
    assert stream.taken == encode_lines(events)
