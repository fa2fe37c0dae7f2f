"""Tests of the command line, with arguments as users pass them."""

from __future__ import annotations

import contextlib
import gzip
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fakes import event, eventually

from spark_events import Event, __version__, jars
from spark_events.cli import conf, main, tail
from spark_events.cli.examples import EXAMPLES
from spark_events.cli.main import argument_parser
from spark_events.event import encode_event, encode_lines
from spark_events.event.stack_traces import shortened
from spark_events.reporters.file import FileConfig, FileReporter
from spark_events.reporters.log_reporter import LogConfig, LogReporter

COMMAND = [sys.executable, "-c", "from spark_events.cli import main; raise SystemExit(main())"]
LOG = [
    '{"Event":"SparkListenerLogStart","Spark Version":"4.0.0"}',
    '{"Event":"SparkListenerApplicationStart","App Name":"shop","App ID":"local-1","Timestamp":1,"User":"ada"}',
    '{"Event":"SparkListenerApplicationEnd","Timestamp":2}',
]


@pytest.fixture
def jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of a stand-in for the jar, because the real jar may not be built."""
    path = tmp_path / "shim.jar"
    path.touch()
    monkeypatch.setattr(conf, "jar_path", lambda: path)
    return path


def write(path: Path, *events: Event) -> None:
    reporter = FileReporter(FileConfig(str(path)))
    reporter.open()
    reporter.report(events)
    reporter.close()


@contextlib.contextmanager
def following(path: Path, output: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run `spark-events tail -f` in its own process."""
    with output.open("wb") as out:
        process = subprocess.Popen([*COMMAND, "tail", "-f", *options, str(path)], stdout=out)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def buffered() -> dict[str, str]:
    """Return an environment in which a command buffers its output, so write errors may surface only at its exit."""
    return {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}


def jar_line(folder: Path) -> str:
    jar = folder / "spark-events-shim.jar"
    jar.touch()
    return f"spark.driver.extraClassPath {jar}"


def bodies(output: str) -> list[str]:
    return [line.partition("Test: ")[2] for line in output.splitlines()]


def test_conf_prints_lines_for_spark_defaults(jar: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each line of `spark-events conf` is a key, white space and a value. The path of the jar exists.

    The lines may be appended to a file whose last line has no line break.
    """
    assert main(["conf"]) == 0
    appended = "spark.app.name shop" + capsys.readouterr().out
    lines = dict(line.split(maxsplit=1) for line in appended.splitlines())
    assert lines["spark.app.name"] == "shop"
    assert lines["spark.extraListeners"] == "io.sparkevents.EventsListener"
    assert lines["spark.driver.extraClassPath"] == str(jar)
    assert lines.get("spark.events.python") == sys.executable


def test_conf_omits_python_if_the_shim_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """After installation from a wheel, `conf` omits spark.events.python: the shim finds Python next to the jar."""
    import sysconfig

    inside = Path(sysconfig.get_path("purelib")).resolve() / "spark_events" / "jars" / "shim.jar"
    monkeypatch.setattr(conf, "jar_path", lambda: inside)
    assert [line.split()[0] for line in conf.lines()] == ["spark.extraListeners", "spark.driver.extraClassPath"]


def test_conf_jar_prints_the_path_alone(jar: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With `--jar`, the command prints only the path, as in: --jars $(spark-events conf --jar)."""
    assert main(["conf", "--jar"]) == 0
    assert capsys.readouterr().out == f"{jar}\n"


def test_installed_jar_has_a_stable_path(jar: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An installed jar has a stable path. A second installation replaces the copy without changing an open file."""
    target = tmp_path / "stable" / jar.name
    jar.write_bytes(b"old")
    assert main(["conf", "--install", str(target.parent)]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines() if line)
    assert (lines["spark.driver.extraClassPath"], lines["spark.events.python"]) == (str(target), sys.executable)
    jar.write_bytes(b"new")
    with target.open("rb") as of_a_driver:
        assert main(["conf", "--jar", "--install", str(target.parent)]) == 0
        assert (of_a_driver.read(), target.read_bytes()) == (b"old", b"new")
    assert capsys.readouterr().out == f"{target}\n"
    assert list(target.parent.iterdir()) == [target]
    assert main(["conf", "--install", str(target)]) == 1
    assert capsys.readouterr().err.startswith(f"spark-events: cannot copy the jar to {target}: ")


def test_uninstall_names_the_lines_to_remove(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`spark-events uninstall` lists everything to remove: settings without values, listener, jar and package."""
    path = tmp_path / "spark-defaults.conf"
    ours = [
        "spark.extraListeners a.B,io.sparkevents.EventsListener",
        "spark.driver.extraClassPath=/opt/spark-events-shim.jar",
        "spark.jars.packages io.sparkevents:spark-events:0.1.0",
        "  events.reporters audit",
        "spark.events.reporter.audit.routing_key s3cret",
    ]
    path.write_text("\n".join(["# spark.events.reporters x", *ours, "spark.eventLog.enabled true"]))
    assert main(["uninstall", "--conf", str(path)]) == 1
    shown = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    printed = [*ours[:3], "events.reporters …", "spark.events.reporter.audit.routing_key …"]
    assert shown == [[str(number), line] for number, line in enumerate(printed, 2)]
    path.write_text("spark.eventLog.enabled true\n")
    assert main(["uninstall", "--conf", str(path)]) == 0
    assert "pip uninstall spark-events" in capsys.readouterr().out


def test_missing_jar_is_reported(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The message about a missing jar contains the path and the build command."""
    monkeypatch.setattr(jars, "JAR_NAME", "no-such.jar")
    assert main(["conf"]) == 1
    output = capsys.readouterr().err
    assert output.startswith("spark-events: the jar is not built: ")
    assert "no-such.jar is missing" in output
    assert "`make jar`" in output


def test_tail_prints_events_oldest_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`spark-events tail` prints each event of a file reporter as one line, oldest first."""
    path = tmp_path / "events.jsonl"
    write(path, *(event(n, rows=n) for n in range(3)))
    assert main(["tail", str(path)]) == 0
    shown = capsys.readouterr()
    assert bodies(shown.out) == ["0", "1", "2"]
    assert shown.err == ""
    assert "\033" not in shown.out


def test_tail_selects_last_events_and_severity(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "events.jsonl"
    write(path, *(event(n, level) for n, level in enumerate(["INFO", "ERROR", "WARN", "INFO"])))
    main(["tail", "-n", "2", str(path)])
    assert bodies(capsys.readouterr().out) == ["2", "3"]
    main(["tail", "-n", "0", str(path)])
    assert capsys.readouterr().out == ""
    main(["tail", "--min-severity", "warn", str(path)])
    assert bodies(capsys.readouterr().out) == ["1", "2"]


def test_tail_counts_only_matching_events(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`tail -n` counts only events of sufficient severity, however many other events are between them."""
    path = tmp_path / "events.jsonl"
    write(path, *(event(n, "ERROR" if n in (1, 3, 5) else "INFO") for n in range(40)))
    main(["tail", "-n", "2", "--min-severity", "error", str(path)])
    assert bodies(capsys.readouterr().out) == ["3", "5"]
    main(["tail", "-n", str(10**30), "--min-severity", "error", str(path)])
    assert bodies(capsys.readouterr().out) == ["1", "3", "5"]


def test_tail_f_starts_with_the_last_events(tmp_path: Path) -> None:
    """`tail -f -n 2` prints the last two existing events and then every new event."""
    path, output = tmp_path / "events.jsonl", tmp_path / "output.txt"
    write(path, *(event(n, "ERROR" if n in (1, 3, 5) else "INFO") for n in range(40)))
    with following(path, output, "-n", "2", "--min-severity", "error"):
        eventually(lambda: len(bodies(output.read_text())) >= 2)
        write(path, *(event(n, "ERROR") for n in (40, 41, 42)))
        eventually(lambda: bodies(output.read_text())[-1] == "42")
    assert bodies(output.read_text()) == ["3", "5", "40", "41", "42"]


def test_tail_can_follow_new_events_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    there, came = encode_event(event(1)), encode_event(event(2))
    monkeypatch.setattr(tail, "follow", lambda _: iter([there, None, None, came, None, came]))
    main(["tail", "-f", "-n", "0", str(tmp_path)])
    assert bodies(capsys.readouterr().out) == ["2", "2"]


def test_tail_can_print_all_attributes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With `-v`, id and attributes follow the event, one per line. Multi-line values are indented; stacks are last."""
    path = tmp_path / "events.jsonl"
    attributes: dict[str, Any] = {"rows": 12, "exception.stacktrace": "a\nb", "failure.root_cause": "c"}
    one = event(1, **attributes)
    write(path, one)
    main(["tail", "-v", str(path)])
    assert capsys.readouterr().out.splitlines()[1:] == [
        f"    event_id = {one.event_id}",
        "    rows = 12",
        "    failure.root_cause = c",
        "    exception.stacktrace = a",
        "        b",
    ]


def test_tail_selects_applications_and_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--app` selects by application id or name, `--name` by event name. Both are repeatable and accept `*`."""
    path = tmp_path / "events.jsonl"
    applications = [("app-1", "shop"), ("app-2", "shop-nightly"), ("app-3", "clicks")]
    write(path, *(event(n, **{"spark.app.id": a, "spark.app.name": b}) for n, (a, b) in enumerate(applications)))
    for options, expected in (
        (["--app", "shop"], ["0"]),
        (["--app", "shop*"], ["0", "1"]),
        (["--app", "app-3", "--app", "shop"], ["0", "2"]),
        (["--name", "Test", "--app", "*"], ["0", "1", "2"]),
        (["--name", "JobFailureEvent"], []),
    ):
        assert main(["tail", *options, str(path)]) == 0
        assert bodies(capsys.readouterr().out) == expected, options


def test_tail_reads_standard_input(tmp_path: Path) -> None:
    """The path `-` is the standard input of `tail`, compressed or uncompressed, with or without `-f`."""
    data = encode_lines([event(1), event(2)])
    for options in ([], ["-f"], ["-n", "2"]):
        for given in (data, gzip.compress(data)):
            done = subprocess.run([*COMMAND, "tail", *options, "-"], input=given, capture_output=True, check=True)
            assert bodies(done.stdout.decode()) == ["1", "2"]


def test_tail_prints_the_time_with_its_zone(tmp_path: Path) -> None:
    """`tail` prints times in UTC, like `report`; with `--local`, in the time zone of the process, with its offset."""
    path = tmp_path / "events.jsonl"
    write(path, event(0))
    environment = {**os.environ, "TZ": "Asia/Kolkata"}
    for options, time in (([], b"2023-11-14 22:13:20Z INFO "), (["--local"], b"2023-11-15 03:43:20+0530 INFO ")):
        done = subprocess.run([*COMMAND, "tail", *options, str(path)], capture_output=True, check=True, env=environment)
        assert done.stdout.startswith(time)


def test_tail_prints_in_the_order_of_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "events.jsonl"
    at = event(0).observed_ts_millis
    write(path, *(msgspec.structs.replace(event(n), observed_ts_millis=at + n * 1000) for n in (2, 0, 3, 1)))
    for options, expected in (([], ["0", "1", "2", "3"]), (["-n", "2"], ["2", "3"]), (["--since", "now"], [])):
        assert main(["tail", *options, str(path)]) == 0
        assert bodies(capsys.readouterr().out) == expected


def test_tail_prints_a_failure_in_forty_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Only the stack trace has several lines; its middle is left out."""
    path = tmp_path / "events.jsonl"
    trace = "\n".join(["Traceback (most recent call last):", *(f"  frame {n}" for n in range(200)), "ValueError: x"])
    more = {f"key.{n}": "value" for n in range(30)}
    write(path, event(1, **{"exception.stacktrace": trace, "exception.message": trace, **more}))
    assert main(["tail", "-v", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 40
    assert sum("Traceback" in line for line in lines) == 1
    assert lines[-1].strip() == "ValueError: x"


def test_tail_prints_each_traceback_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Spark repeats a task's tracebacks in the job's exception, its message and its cause."""
    path = tmp_path / "events.jsonl"
    first = "Traceback (most recent call last):\n  File \"pay.py\", line 7, in rate\nKeyError: 'EUR'\n"
    during = "\nDuring handling of the above exception, another exception occurred:\n\n"
    second = 'Traceback (most recent call last):\n  File "pay.py", line 9, in rate\nValueError: no currency\n'
    message = f"Job aborted: org.example.PythonException: {first}{during}{second}"
    trace = (
        f"org.example.SparkException: {message}\n\tat a.B.c(B.java:1)\n\nDriver stacktrace:\n\tat a.D.e(D.java:2)\n"
        f"Caused by: org.example.PythonException: {first}{during}{second}\n\tat a.F.g(F.java:3)\n\t... 3 more\n"
    )
    more = {f"key.{n}": "value" for n in range(10)}
    attributes = {"exception.stacktrace": trace, "exception.message": message, **more}
    write(path, event(1, **attributes))
    assert main(["tail", "-v", str(path)]) == 0
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) <= 40
    for once in ("line 7", "line 9", "KeyError: 'EUR'", "ValueError: no currency", "B.java:1", "D.java:2", "F.java:3"):
        assert shown.count(once) == 1, shown
    assert shown.count("Traceback (most recent call last)") == 2
    assert "Caused by: org.example.PythonException: the traceback above" in shown


@pytest.mark.parametrize(("columns", "widest"), [("80", 80), (None, 400)])
def test_tail_wraps_lines_in_a_pipe_only_to_given_columns(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    columns: str | None,
    widest: int,
) -> None:
    path = tmp_path / "events.jsonl"
    write(path, event(1, **{"exception.message": "no currency " * 40}))
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    assert main(["tail", "-v", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert (max(map(len, lines)) <= 80) is (widest == 80)


@pytest.mark.parametrize("frames", [2, 40])
def test_tail_prints_the_end_of_a_traceback_rather_than_java_s_frames(frames: int) -> None:
    """The last call and the exception say more than Spark's own code."""
    own = [f'File "worker.py", line {n}' for n in range(frames)]
    python = [
        "A: Traceback (most recent call last):",
        *own,
        'File "pay.py", line 9, in rate',
        "ValueError: no currency",
    ]
    java = [f"at a.B.c(B.java:{n})" for n in range(60)]
    lines = shortened([*python, *java, "Caused by: D: 2", *java], 12)
    assert len(lines) <= 12
    assert {'File "pay.py", line 9, in rate', "ValueError: no currency", "Caused by: D: 2"} <= {*lines}
    assert sum("more lines" in line for line in lines) >= 2


@pytest.mark.parametrize("command", [["tail"], ["report"], ["why"]])
def test_commands_read_the_lines_of_the_log_reporter(
    command: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A collector may store standard error, which also contains lines that are not events."""
    about = {"spark.app.name": "shop", "spark.app.id": "a1", "incident.role": "alarm", "incident.key": "shop/failure"}
    failed = msgspec.structs.replace(
        event(1, "ERROR", **about, **{"failure.root_cause": "ValueError: no currency"}),
        name="JobFailureEvent",
        class_scope="spark.application",
        body="shop: failed",
    )
    LogReporter(LogConfig(format="json")).report([failed])
    path = tmp_path / "events.jsonl"
    path.write_text(f"26/01/31 10:00:00 INFO SparkContext: Running Spark\n{capfd.readouterr().err}")
    assert main([*command, str(path)]) == 0
    assert "shop" in capfd.readouterr().out


def test_tail_lists_the_applications_of_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "events.jsonl"
    write(path, event(0, **{"spark.app.name": "shop"}), event(1, **{"spark.app.name": "till"}))
    assert main(["tail", "--app", "nosuch", str(path)]) == 1
    assert capsys.readouterr().err == "spark-events: --app: given nosuch; the file has: shop, till\n"


def test_help_ends_with_two_examples(capsys: pytest.CaptureFixture[str]) -> None:
    for command, lines in EXAMPLES.items():
        with pytest.raises(SystemExit):
            main([command, "--help"])
        shown = capsys.readouterr().out.splitlines()
        assert [line.strip() for line in shown[-2:]] == [f"spark-events {line}" for line in lines]
        for line in lines:
            assert argument_parser().parse_args(shlex.split(line.partition(" >>")[0])).run is not None


def test_tail_wraps_at_the_terminal_s_width() -> None:
    """Lines are wrapped and indented only on a terminal. A word that exceeds the width is not split."""
    one = event(1, url="x" * 90, text="ten chars " * 9)
    wide, wrapped = (tail._render(one, width, width > 0, True, False).splitlines() for width in (0, 50))
    assert len(wide) == 4
    assert len(wrapped) > len(wide)
    assert all(len(line) <= 60 or "x" * 90 in line for line in wrapped)
    assert "".join("".join(wrapped).split()).replace(tail._DIM, "").replace(tail._RESET, "") == "".join(
        "".join(wide).split()
    )


def test_tail_escapes_control_characters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Control characters in attributes are escaped, but line breaks in values are kept."""
    path = tmp_path / "events.jsonl"
    texts = {
        "title": "\x1b]0;owned\x07a",
        "over": "b\rc",
        "erase\x1b[2J": "\x9b2J",
        "trace": "d\r\n\tat e\r\n\x1b[31mf",
        "file": "\u202efdp.exe",
    }
    write(path, event(1, **texts))
    main(["tail", "-v", str(path)])
    assert capsys.readouterr().out.splitlines()[2:] == [
        r"    title = \x1b]0;owned\x07a",
        "    over = b c",
        r"    erase\x1b[2J = \x9b2J",
        "    trace = d",
        "            at e",
        r"        \x1b[31mf",
        r"    file = \u202efdp.exe",
    ]


@pytest.mark.parametrize("damage", [b"not json\n", b"{}\n", b"\xff\xfe\n", b'{"name":"x"}\n', b'{"cut'])
def test_tail_counts_damaged_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: bytes) -> None:
    """Lines that are not events are skipped, counted, and reported on standard error."""
    path = tmp_path / "events.jsonl"
    write(path, event(1))
    with path.open("ab") as file:
        file.write(damage)
    assert main(["tail", str(path)]) == 0
    shown = capsys.readouterr()
    assert bodies(shown.out) == ["1"]
    assert shown.err == f"spark-events: {path}: skipped 1 line that is not an event\n"


def test_tail_reads_compressed_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`tail` reads compressed files regardless of their names, including files with several gzip streams."""
    both = tmp_path / "both"
    both.write_bytes(b"".join(gzip.compress(encode_lines([event(n), event(n + 1)])) for n in (0, 2)))
    assert main(["tail", "-n", "3", str(both)]) == 0
    shown = capsys.readouterr()
    assert (bodies(shown.out), shown.err) == (["1", "2", "3"], "")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data: data[:-9], "the file ends in the middle of a compressed block"),
        (lambda data: data + b"more", "the rest of the file cannot be decompressed (Not a gzipped file (b'mo'))"),
    ],
)
def test_tail_prints_the_readable_part_of_a_damaged_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[bytes], bytes], reason: str
) -> None:
    """For a damaged file, the readable events are printed, and then the reason why reading stopped."""
    path = tmp_path / "events.jsonl.gz"
    path.write_bytes(damage(gzip.compress(encode_lines([event(n) for n in range(4)]))))
    assert main(["tail", "-n", "2", str(path)]) == 1
    shown = capsys.readouterr()
    assert len(bodies(shown.out)) == 2
    assert shown.err == f"spark-events: {path}: {reason}\n"


def test_tail_does_not_follow_a_compressed_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A compressed file cannot be followed: the command fails at once instead of waiting."""
    path = tmp_path / "events.jsonl.gz"
    path.write_bytes(gzip.compress(encode_lines([event(0)])))
    assert main(["tail", "-f", str(path)]) == 1
    shown = capsys.readouterr()
    reason = "is compressed and does not grow; run tail without -f"
    assert (shown.out, shown.err) == ("", f"spark-events: -f: {path} {reason}\n")


def test_tail_reads_a_pipe(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    write(path, event(1))
    command = [*COMMAND, "tail", "/dev/stdin"]
    for data in (path.read_bytes(), gzip.compress(path.read_bytes())):
        done = subprocess.run(command, input=data, capture_output=True, check=True)
        assert bodies(done.stdout.decode()) == ["1"]


def test_tail_rejects_a_url_without_its_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tail", "postgresql://ada:s3cret@db/events?password=s3cret"]) == 1
    assert capsys.readouterr().err.startswith("spark-events: postgresql://db/…: tail reads only files;")


@pytest.mark.parametrize(("name", "reason"), [("missing", "No such file or directory"), (".", "Is a directory")])
@pytest.mark.parametrize("follow", [[], ["-f"]])
def test_tail_reports_an_unreadable_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, reason: str, follow: list[str]
) -> None:
    """For an unreadable path, the command prints one line with the path and the reason, and exits with 1."""
    path = tmp_path / name
    assert main(["tail", *follow, str(path)]) == 1
    assert capsys.readouterr().err == f"spark-events: cannot read {path}: {reason}\n"


def test_tail_follows_a_file_that_grows(tmp_path: Path) -> None:
    """New events are printed as soon as they are written. An incomplete line is printed once it is complete."""
    path, output = tmp_path / "events.jsonl", tmp_path / "output.txt"
    write(path, event(0))
    with following(path, output) as process:
        eventually(lambda: bodies(output.read_text()) == ["0"])
        write(path, event(1))
        spare = tmp_path / "spare.jsonl"
        write(spare, event(2))
        whole = spare.read_bytes()
        with path.open("ab") as file:
            os.write(file.fileno(), whole[:40])
            eventually(lambda: bodies(output.read_text()) == ["0", "1"])
            os.write(file.fileno(), whole[40:])
        eventually(lambda: bodies(output.read_text()) == ["0", "1", "2"])
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130


def shows(output: Path, count: int) -> bool:
    return bodies(output.read_text()) == [str(number) for number in range(count)]


def test_tail_follows_through_rotation(tmp_path: Path) -> None:
    """Events are printed once and in order, although the reporter rotates the file at each event."""
    path, output = tmp_path / "events.jsonl", tmp_path / "output.txt"
    write(path, event(0))
    with following(path, output):
        reporter = FileReporter(FileConfig(str(path), max_size=256, keep=1000))
        reporter.open()
        for number in range(1, 6):
            eventually(partial(shows, output, number))
            reporter.report([event(number)])
        reporter.close()
        eventually(partial(shows, output, 6))
    assert bodies(output.read_text()) == [str(number) for number in range(6)]


def test_tail_follows_through_truncation(tmp_path: Path) -> None:
    """After copytruncate of logrotate has truncated the file, `tail -f` continues."""
    path, output = tmp_path / "events.jsonl", tmp_path / "output.txt"
    write(path, event(0), event(1))
    with following(path, output):
        eventually(lambda: bodies(output.read_text()) == ["0", "1"])
        os.truncate(path, 0)
        write(path, event(2))
        eventually(lambda: len(output.read_text().splitlines()) >= 3, what="3 events")
        assert bodies(output.read_text()) == ["0", "1", "2"]


def test_a_closed_pipe_causes_no_error(tmp_path: Path) -> None:
    """`spark-events tail … | head -1` prints no error."""
    path = tmp_path / "events.jsonl"
    write(path, *(event(n, text="x" * 1000) for n in range(500)))
    command = (
        f"{sys.executable} -c 'from spark_events.cli import main; raise SystemExit(main())' tail -v {path} | head -1"
    )
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, check=False)
    assert bodies(done.stdout.decode()) == ["0"]
    assert (done.stderr, done.returncode) == (b"", 0)


@pytest.mark.parametrize("count", [1, 500])
@pytest.mark.parametrize("command", [["tail"], ["tail", "-f"], ["replay"], ["check", "--conf"]])
def test_unwritable_output_is_reported(tmp_path: Path, command: list[str], count: int) -> None:
    """If the output cannot be written, the message names the output, not the input, whenever the error occurs."""
    path = tmp_path / "input"
    if command == ["replay"]:
        path.write_text("\n".join([*LOG, *LOG[-1:] * count, ""]))
    elif command == ["check", "--conf"]:
        path.write_text("\n".join(f"events.reporter.r{n}.type none" for n in range(count)))
    else:
        write(path, *map(event, range(count)))
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, *command, str(path)], stdout=full, stderr=subprocess.PIPE, check=False, env=buffered()
        )
    assert done.stderr.decode() == "spark-events: cannot write the output: No space left on device\n"
    assert done.returncode == 1


@pytest.mark.parametrize("code", [0, 1])
def test_a_pipe_closed_at_the_end_causes_no_error(tmp_path: Path, code: int) -> None:
    """If the pipe is closed at the command's exit, no error is printed, and the exit code does not change."""
    conf = tmp_path / "spark-defaults.conf"
    conf.write_text("" if code else f"spark.extraListeners io.sparkevents.EventsListener\n{jar_line(tmp_path)}\n")
    reading, writing = os.pipe()
    os.close(reading)
    try:
        command = [*COMMAND, "check", "--conf", str(conf)]
        done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False, env=buffered())
    finally:
        os.close(writing)
    assert (done.stderr, done.returncode) == (b"", code)


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [("ascii", rb"Gr\xfc\xdfe \u2603"), ("ascii:replace", b"Gr??e ?"), ("utf-8", "Grüße ☃".encode())],
)
def test_characters_that_the_encoding_lacks_are_escaped(tmp_path: Path, encoding: str, shown: bytes) -> None:
    """Characters that the encoding cannot represent are escaped, unless PYTHONIOENCODING specifies otherwise."""
    path = tmp_path / "events.jsonl"
    write(path, event(1, text="Grüße ☃"))
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run([*COMMAND, "tail", "-v", str(path)], capture_output=True, check=False, env=environment)
    assert done.stdout.splitlines()[2:] == [b"    text = " + shown]
    assert (done.stderr, done.returncode) == (b"", 0)


@pytest.mark.parametrize("given", ["nan", "-0.5", "inf", "10", "99999d"])
@pytest.mark.parametrize(
    ("command", "option", "least"), [("replay", "--patience", ""), ("send-test", "--timeout", "above 0 ")]
)
def test_invalid_durations_are_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, option: str, least: str, given: str
) -> None:
    """Invalid durations are rejected before any other action, with the option, the value and the allowed values."""
    conf = tmp_path / "spark-defaults.conf"
    conf.write_text(f"events.reporter.a.type file\nevents.reporter.a.path {tmp_path}/events.jsonl\n")
    log = tmp_path / "log"
    log.write_text("\n".join([*LOG, ""]))
    paths = [str(log)] if command == "replay" else []
    with pytest.raises(SystemExit) as exited:
        main([command, *paths, "--conf", str(conf), f"{option}={given}"])
    assert exited.value.code == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    message = f"argument {option}: given {given!r}, expected a whole number {least}with a unit (ms, s, min, h, d)"
    assert message in shown.err
    assert not (tmp_path / "events.jsonl").exists()


@pytest.mark.parametrize("arguments", [[], ["no-such-command"], ["tail"], ["tail", "-n", "x", "p"]])
def test_wrong_usage_is_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """After invalid arguments, the command prints the usage, does nothing else, and exits with 2."""
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert capsys.readouterr().err.startswith("usage: spark-events")


def test_version_is_the_package_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert (caught.value.code, capsys.readouterr().out) == (0, f"spark-events {__version__}\n")
