"""Tests of ``spark-events check`` with real configuration files."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest

from spark_events import __version__
from spark_events.cli import check, main

WIRED = "spark.extraListeners io.sparkevents.EventsListener\nspark.driver.extraClassPath {jar}\n"


@pytest.fixture
def jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of a stand-in for the jar, because the real jar may not be built."""
    path = tmp_path / "spark-events-shim.jar"
    path.touch()
    monkeypatch.setattr(check, "jar_path", lambda: path)
    return path


@pytest.fixture
def conf(tmp_path: Path, jar: Path) -> Path:
    """Return a configuration file with only the listener and the jar."""
    path = tmp_path / "spark-defaults.conf"
    path.write_text(WIRED.format(jar=jar))
    return path


def wrong(output: str) -> list[str]:
    return [line.split(None, 1)[1] for line in output.splitlines() if line.split()[:1] == ["wrong"]]


def test_valid_configuration_is_printed_with_its_reporters(conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For a valid configuration, each reporter's type and guarantee is printed, and no reporter is created."""
    target = conf.parent / "events.jsonl"
    lines = f"events.reporter.audit.type file\nevents.reporter.audit.path {target}\n"
    conf.write_text(conf.read_text() + lines + "events.reporter.audit.delivery.guarantee at-least-once\n")
    assert main(["check", "--conf", str(conf)]) == 0
    shown = capsys.readouterr().out
    assert wrong(shown) == []
    assert ["audit", "file", "at-least-once", "thread"] in [line.split() for line in shown.splitlines()]
    assert sorted(path.name for path in conf.parent.iterdir()) == ["spark-defaults.conf", "spark-events-shim.jar"]


def test_every_error_is_printed_with_its_key(conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All errors in the file and on the command line are printed together, each with its key."""
    conf.write_text(conf.read_text() + "events.dispatcher.type asink\n")
    assert main(["check", "--conf", str(conf), "--set", "spark.events.reporter.audit.type=fiel"]) == 1
    first, second = sorted(wrong(capsys.readouterr().out))
    assert first.startswith("events.dispatcher.type: given 'asink', expected one of sync, async-queued; set in ")
    assert second.startswith("spark.events.reporter.audit.type: given 'fiel' (no such type")
    assert second.endswith("set in the command line")


@pytest.mark.parametrize("prefix", ["spark.", ""])
def test_a_hint_has_the_prefix_of_the_command_line(conf: Path, capsys: pytest.CaptureFixture[str], prefix: str) -> None:
    """Spark ignores a setting without its prefix after ``--conf``, so a hint must not drop the prefix."""
    assert main(["check", "--conf", str(conf), "--set", f"{prefix}events.pythonn=python3"]) == 1
    (shown,) = wrong(capsys.readouterr().out)
    assert shown.startswith(f"{prefix}events.pythonn: unknown key;")
    assert shown.endswith(f"did you mean {prefix}events.python?")


def test_unusable_reporter_fails_the_check(conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An unusable active reporter fails the check. Keys of inactive reporters are not checked."""
    lines = "events.reporters a, out\nevents.reporter.a.type log\nevents.reporter.out.type file\n"
    lines += "events.reporter.off.timeout 10\nevents.reporter.off.url ${env:NO_SUCH_VARIABLE}\n"
    conf.write_text(conf.read_text() + lines)
    assert main(["check", "--conf", str(conf)]) == 1
    shown = capsys.readouterr().out
    (required,) = wrong(shown)
    assert required.startswith("events.reporter.out.path: required, but not set")
    assert "A driver would disable these reporters and continue with the remaining reporters: out" in shown


def test_an_empty_python_is_the_default(conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty ``events.python``, as in a template, selects the default."""
    conf.write_text(conf.read_text() + "spark.events.python=\n")
    assert main(["check", "--conf", str(conf)]) == 0


def test_missing_listener_and_jar_are_reported(tmp_path: Path, jar: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A missing listener or jar is reported, because without them the driver reports no event."""
    empty = tmp_path / "empty.conf"
    empty.write_text("")
    assert main(["check", "--conf", str(empty)]) == 1
    listener, path = wrong(capsys.readouterr().out)
    assert listener.startswith("spark.extraListeners: io.sparkevents.EventsListener is missing")
    assert path.startswith("spark.driver.extraClassPath: the jar of spark-events is missing, and Spark does not start")
    assert path.endswith(f"add {jar}")
    assert main(["check", "--conf", str(empty), "--set", f"spark.jars={jar},/gone/spark-events-shim.jar"]) == 1
    _, gone = wrong(capsys.readouterr().out)
    assert gone.startswith("spark.jars: no such file: /gone/spark-events-shim.jar; Spark does not start without")


@pytest.mark.parametrize(
    ("python", "reason"),
    [
        ("/no/such/python", "which cannot be run: No such file or directory"),
        ("/bin/false", "which cannot import spark_events: exit code 1"),
    ],
)
def test_python_that_cannot_run_the_sidecar_is_reported(
    conf: Path, capsys: pytest.CaptureFixture[str], python: str, reason: str
) -> None:
    """A Python that cannot run the sidecar is reported, because the command starts this Python to test it."""
    assert main(["check", "--conf", str(conf), "--set", f"spark.events.python={python}"]) == 1
    assert wrong(capsys.readouterr().out) == [f"spark.events.python: given {python!r}, {reason}"]
    assert main(["check", "--conf", str(conf), "--set", f"spark.events.python={sys.executable}"]) == 0


def test_events_python_may_be_a_reference(
    conf: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in the driver, a reference in ``events.python`` is resolved. Messages contain the reference, not its value."""
    prompts = ["check", "--conf", str(conf), "--set", "spark.events.python=${env:OUR_PYTHON}"]
    monkeypatch.setenv("OUR_PYTHON", sys.executable)
    assert main(prompts) == 0
    monkeypatch.setenv("OUR_PYTHON", "/no/such/python")
    capsys.readouterr()
    assert main(prompts) == 1
    reason = "which cannot be run: No such file or directory"
    assert wrong(capsys.readouterr().out) == [f"spark.events.python: given '${{env:OUR_PYTHON}}', {reason}"]
    monkeypatch.delenv("OUR_PYTHON")
    assert main(prompts) == 1
    (missing,) = wrong(capsys.readouterr().out)
    assert "has no variable OUR_PYTHON" in missing


def test_the_default_file_is_spark_s_file(
    conf: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in Spark, the default file is in SPARK_CONF_DIR. If the file is missing, the message names the next step."""
    monkeypatch.setenv("SPARK_CONF_DIR", str(conf.parent))
    assert main(["check"]) == 0
    assert capsys.readouterr().out.startswith(f"{conf}:\n")
    monkeypatch.setenv("SPARK_CONF_DIR", "/no/such/folder")
    assert main(["check"]) == 1
    message = capsys.readouterr().err
    assert "looked for /no/such/folder/spark-defaults.conf, from SPARK_CONF_DIR; create it with `mkdir -p" in message
    assert message.endswith("or pass --conf FILE\n")
    assert main(["check", "--conf", "/no/such/file"]) == 1
    assert capsys.readouterr().err == "spark-events: cannot read /no/such/file: No such file or directory\n"


def test_at_least_once_is_recommended_for_remote_destinations(conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For a remote destination without a guarantee, the command recommends at-least-once; this is not an error."""
    reporters: dict[str, dict[str, object]] = {
        "file": {"path": conf.parent / "events.jsonl"},
        "webhook": {"url": "http://127.0.0.1:1"},
        "otlp": {"delivery.guarantee": "best-effort"},
        "database": {"url": "sqlite:///events.db"},
    }
    lines = [f"spark.events.reporter.{kind}.type {kind}" for kind in reporters]
    lines += [
        f"spark.events.reporter.{k}.{key} {value}" for k, keys in reporters.items() for key, value in keys.items()
    ]
    conf.write_text(conf.read_text() + "\n".join(lines) + "\n")
    assert main(["check", "--conf", str(conf)]) == 0
    (advice,) = (line for line in capsys.readouterr().out.splitlines() if "advice" in line)
    assert "spark.events.reporter.webhook.delivery.guarantee: not set" in advice
    assert "at-least-once" in advice


@pytest.mark.parametrize(
    ("format", "environment", "advised"),
    [("slack", "", True), ("alertmanager", "", True), ("slack", "prod", False), ("json", "", False)],
)
def test_alerts_without_an_environment_are_pointed_out(
    format: str, environment: str, advised: bool, conf: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Several environments may share a receiver of alerts, and then close each other's alerts."""
    below = "events.reporter.page"
    lines = [f"{below}.type webhook", f"{below}.url http://localhost/", f"{below}.format {format}"]
    lines += [f"{below}.delivery.guarantee best-effort", f"events.environment {environment}" if environment else ""]
    conf.write_text(conf.read_text() + "\n".join(lines) + "\n")
    main(["check", "--conf", str(conf)])
    advice = [line.split()[1] for line in capsys.readouterr().out.splitlines() if "advice" in line]
    assert [key for key in advice if "environment" in key] == ["spark.events.environment:"] * advised


def test_set_without_key_and_value_is_rejected(conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``--set`` accepts only KEY=VALUE, like spark-submit."""
    assert main(["check", "--conf", str(conf), "--set", "events.required"]) == 2
    assert capsys.readouterr().err == "spark-events: --set: given 'events.required', allowed: KEY=VALUE\n"


def test_a_jar_or_package_of_another_version_is_an_error(
    conf: Path, jar: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A jar or Maven package of another version is an error. With this version's package, no class path is needed."""
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("io/sparkevents/version", "0.0.9")
    assert main(["check", "--conf", str(conf)]) == 1
    (problem,) = wrong(capsys.readouterr().out)
    assert problem.startswith(f"spark.driver.extraClassPath: {jar} is spark-events 0.0.9, but this Python package is ")
    line = "spark.extraListeners io.sparkevents.EventsListener\nspark.jars.packages a:b:1, io.sparkevents:spark-events:"
    conf.write_text(f"{line}{__version__}\n")
    assert main(["check", "--conf", str(conf)]) == 0
    conf.write_text(f"{line}0.0.9\n")
    assert main(["check", "--conf", str(conf)]) == 1
    assert "spark.jars.packages: given io.sparkevents:spark-events:0.0.9" in capsys.readouterr().out
