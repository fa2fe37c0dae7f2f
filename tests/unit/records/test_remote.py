"""Tests of reading event logs from a real S3 server."""

from __future__ import annotations

import gzip
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from storages import ACCESS_KEY, SECRET_KEY, Bucket, s3_server

from spark_events.cli import main
from spark_events.errors import MissingExtraError, SparkEventsError
from spark_events.records.event_log.log_files import find_logs
from spark_events.records.event_log.log_paths import place_of
from spark_events.records.event_log.log_reader import EventLogReader

FIXTURES = Path(__file__).parent / "fixtures"
STREAM = FIXTURES / "foreachbatch-4.3.jsonl"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with s3_server(tmp_path_factory.mktemp("s3")) as filesystem:
        yield filesystem


@pytest.fixture
def bucket(server: Any, request: pytest.FixtureRequest) -> Bucket:
    return Bucket(server, f"logs-{abs(hash(request.node.nodeid))}")


def replay(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, list[Any], str]:
    code = main(["replay", *map(str, arguments)])
    shown = capsys.readouterr()
    return code, [json.loads(line) for line in shown.out.splitlines()], shown.err


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_a_storage_yields_the_events_of_the_same_local_folder(
    capsys: pytest.CaptureFixture[str], bucket: Bucket, scheme: str
) -> None:
    """All codecs, single files and the id of each event are the same, whatever the order of the logs."""
    bucket.upload(FIXTURES, "spark-logs/deep")
    here, there = replay(capsys, FIXTURES), replay(capsys, f"{scheme}://{bucket.name}/spark-logs")
    assert (here[0], there[0]) == (0, 0)

    def order(event: dict[str, Any]) -> str:
        return str(event["event_id"])

    assert sorted(here[1], key=order) == sorted(there[1], key=order)
    assert here[2].splitlines()[-1] == there[2].splitlines()[-1]


def test_rolling_compacted_and_growing_logs_are_read(tmp_path: Path, bucket: Bucket) -> None:
    lines = STREAM.read_bytes().splitlines(keepends=True)
    name = "eventlog_v2_local-1"
    bucket.put(f"logs/{name}/appstatus_local-1.inprogress", b"")
    bucket.put(f"logs/{name}/events_1_local-1", b"replaced by the compacted part")
    bucket.put(f"logs/{name}/events_2_local-1.compact", b"".join(lines[:20]))
    bucket.put(f"logs/{name}/events_4_local-1.gz", gzip.compress(b"".join(lines[20:])))
    bucket.put("logs/local-2.inprogress", b"".join(lines)[:-50])
    bucket.put("logs/_temporary/local-3", b"hidden")
    bucket.put("logs/", b"")
    logs = {log.path.name: log for log in find_logs(place_of(f"{bucket.url}/logs"))}
    assert {key: [file.name for file in log.files] for key, log in logs.items()} == {
        name: ["events_2_local-1.compact", "events_4_local-1.gz"],
        "local-2.inprogress": ["local-2.inprogress"],
    }
    assert all(log.in_progress for log in logs.values())
    complaints: list[str] = []
    whole = list(EventLogReader(logs[name], complaints.append).records())
    assert whole == list(EventLogReader(next(find_logs(STREAM)), complaints.append).records())
    assert [text[: text.index(": ")].removeprefix(f"{bucket.url}/…/") for text in complaints] == [
        name,
        "events_2_local-1.compact",
    ]
    assert "part events_3_* is missing" in complaints[0]


def test_since_opens_no_older_log(
    capsys: pytest.CaptureFixture[str], bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --since, an older log is counted and not opened."""
    bucket.upload(FIXTURES, "logs")
    monkeypatch.setattr("spark_events.cli.replay.looks_like_a_log", lambda path: pytest.fail(f"opened {path}"))
    code, events, errors = replay(capsys, f"{bucket.url}/logs", "--since", "2999-01-01T00:00")
    assert (code, events) == (0, [])
    number = sum(file.is_file() for file in FIXTURES.iterdir())
    assert f"; {number} logs older than --since not read" in errors


def test_a_large_folder_is_listed_in_pages(bucket: Bucket) -> None:
    """The first log is known after one request, long before the listing ends."""
    for number in range(1, 4):
        bucket.put(f"logs/local-{number}", b"")
    from spark_events.records.event_log.remote import pages_of

    requests: list[dict[str, Any]] = []

    class Server:
        def call_s3(self, method: str, **arguments: Any) -> dict[str, Any]:
            requests.append(arguments)
            more = len(requests) < 100
            entries = [{"Key": f"logs/local-{len(requests)}-{n}", "Size": 1, "LastModified": None} for n in range(1000)]
            return {"Contents": entries, "IsTruncated": more, "NextContinuationToken": str(len(requests))}

    listing = pages_of(Server(), f"{bucket.name}/logs")
    assert next(listing)["name"] == "logs/local-1-0"
    assert len(requests) == 1
    assert sum(1 for _ in listing) == 99_999
    assert [one.get("ContinuationToken") for one in requests] == [None, *map(str, range(1, 100))]


def test_report_and_why_read_a_storage(capsys: pytest.CaptureFixture[str], bucket: Bucket) -> None:
    bucket.put("logs/local-1", STREAM.read_bytes())
    assert main(["report", f"{bucket.url}/logs", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["applications"][0]["name"] == "mat-foreachbatch"
    assert main(["why", f"{bucket.url}/logs"]) == 0
    assert "bad foreachBatch value" in capsys.readouterr().out


def test_the_commands_for_a_storage_can_be_typed(capsys: pytest.CaptureFixture[str], bucket: Bucket) -> None:
    """They name the whole URL, which contains no secret."""
    bucket.put("deep/logs/local-1", STREAM.read_bytes())
    place = f"{bucket.url}/deep/logs"
    shown = []
    for command in (["report", place, "--json"], ["why", place, "--json"], ["report", place, "--fleet", "--json"]):
        assert main([*command, *(["--until", "2026-11-22T00:00"] if "--fleet" in command else [])]) == 0
        found = json.loads(capsys.readouterr().out)
        shown += [one["command"] for one in found.get("problems", found.get("applications")) or [found["problem"]]]
    assert len(shown) == 3
    for command in shown:
        words = shlex.split(command)
        assert words[:1] == ["spark-events"]
        assert main(words[1:]) == 0, command
        assert "mat-foreachbatch" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("{bucket}/gone", "cannot read {bucket}/gone: no such file or folder"),
        ("s3://no-such-bucket-here/secret-folder/x", "cannot read s3://no-such-bucket-here/…/x: no such file"),
        ("s3://key:s3cr3t@bucket/logs", "s3://…: the URL contains a user, a password or a query"),
        ("s3://bucket/logs?X-Amz-Signature=s3cr3t", "s3://…: the URL contains a user, a password or a query"),
        ("ftp://key:s3cr3t@host/logs", "ftp://…: unknown scheme; expected a path or a URL with file://"),
    ],
)
@pytest.mark.parametrize("command", ["replay", "report", "why"])
def test_errors_name_the_place_without_secrets(
    capsys: pytest.CaptureFixture[str], bucket: Bucket, command: str, where: str, message: str
) -> None:
    if where.startswith("ftp") and command != "replay":
        message = "SOURCE: expected a path"
    assert main([command, where.format(bucket=bucket.url)]) == 1
    shown = capsys.readouterr().err
    assert message.format(bucket=bucket.url) in shown
    assert "s3cr3t" not in shown
    assert "secret-folder" not in shown


def test_an_unreachable_server_is_an_error_without_secrets(
    capsys: pytest.CaptureFixture[str], server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    assert main(["replay", "s3://other/logs"]) == 1
    shown = capsys.readouterr().err
    assert "cannot read s3://other/logs: " in shown
    assert SECRET_KEY not in shown
    assert ACCESS_KEY not in shown


@pytest.mark.parametrize(
    ("url", "library", "extra"),
    [
        ("s3a://b/x", "s3fs", "s3"),
        ("gs://b/x", "gcsfs", "gcs"),
        ("abfs://c@a.dfs.core.windows.net/x", "adlfs", "azure"),
        ("hdfs://n/x", "pyarrow", "hdfs"),
        ("webhdfs://n/x", "fsspec", "hdfs"),
    ],
)
def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, url: str, library: str, extra: str) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'spark-events\[{extra}\]'"):
        place_of(url)


def test_a_file_url_is_a_local_path(tmp_path: Path) -> None:
    assert place_of(f"file://{tmp_path}/a%20log") == tmp_path / "a log"
    with pytest.raises(SparkEventsError, match=r"^ftp://…: unknown scheme"):
        place_of("ftp://host/logs")


def test_reading_local_logs_imports_no_storage_library() -> None:
    program = (
        "import sys, spark_events.cli.replay, spark_events.report.sources\n"
        "assert not {'fsspec', 's3fs', 'botocore'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
