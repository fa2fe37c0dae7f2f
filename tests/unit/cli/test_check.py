"""What is wrong with a configuration, before a driver runs with it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from spark_events.cli import check, main

WIRED = "spark.extraListeners io.sparkevents.EventsListener\nspark.driver.extraClassPath {jar}\n"


@pytest.fixture
def jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A jar that is built, wherever the real one is."""
    path = tmp_path / "spark-events-shim.jar"
    path.touch()
    monkeypatch.setattr(check, "jar_path", lambda: path)
    return path


@pytest.fixture
def conf(tmp_path: Path, jar: Path) -> Path:
    """A file that switches events on, and configures nothing."""
    path = tmp_path / "spark-defaults.conf"
    path.write_text(WIRED.format(jar=jar))
    return path


def wrong(output: str) -> list[str]:
    return [line.split(None, 1)[1] for line in output.splitlines() if line.split()[:1] == ["wrong"]]


def test_a_configuration_that_works_is_shown_as_it_is_understood(
    conf: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each reporter with its type and what is promised; nothing is delivered, opened or made."""
    target = conf.parent / "events.jsonl"
    lines = f"events.reporter.audit.type file\nevents.reporter.audit.path {target}\n"
    conf.write_text(conf.read_text() + lines + "events.reporter.audit.delivery.guarantee at-least-once\n")
    assert main(["check", "--conf", str(conf)]) == 0
    shown = capsys.readouterr().out
    assert wrong(shown) == []
    assert ["audit", "file", "at-least-once", "thread"] in [line.split() for line in shown.splitlines()]
    assert sorted(path.name for path in conf.parent.iterdir()) == ["spark-defaults.conf", "spark-events-shim.jar"]


def test_every_mistake_is_named_with_its_key(conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All at once: those of the file and those of the command line, which says where it stood."""
    conf.write_text(conf.read_text() + "events.dispatcher.type asink\n")
    assert main(["check", "--conf", str(conf), "--set", "spark.events.reporter.audit.type=fiel"]) == 1
    first, second = sorted(wrong(capsys.readouterr().out))
    assert first.startswith("events.dispatcher.type: given 'asink', allowed is one of sync, async-queued; set in ")
    assert second.startswith("events.reporter.audit.type: given 'fiel' (no such type")
    assert second.endswith("set in the command line")


def test_a_reporter_that_cannot_be_used_fails_the_check_though_the_others_would_run(
    conf: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And so does a mistake in one that is not active."""
    lines = "events.reporters a, out\nevents.reporter.a.type log\nevents.reporter.out.type file\n"
    lines += "events.reporter.off.timeout 10\nevents.reporter.off.url ${env:NO_SUCH_VARIABLE}\n"
    conf.write_text(conf.read_text() + lines)
    assert main(["check", "--conf", str(conf)]) == 1
    shown = capsys.readouterr().out
    required, inactive = wrong(shown)
    assert required.startswith("events.reporter.out.path: required, but not set")
    assert inactive.startswith("events.reporter.off.timeout: given '10', allowed is")
    assert "A driver would run without the reporters out, and with the others." in shown


def test_an_empty_python_is_the_default(conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a template leaves it."""
    conf.write_text(conf.read_text() + "spark.events.python=\n")
    assert main(["check", "--conf", str(conf)]) == 0


def test_what_spark_has_not_been_told_is_said(tmp_path: Path, jar: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without the listener or the jar the best settings report nothing."""
    empty = tmp_path / "empty.conf"
    empty.write_text("")
    assert main(["check", "--conf", str(empty)]) == 1
    listener, path = wrong(capsys.readouterr().out)
    assert listener.startswith("spark.extraListeners: without io.sparkevents.EventsListener nothing is reported")
    assert path == f"spark.driver.extraClassPath: the jar is not in it; add {jar}"
    assert main(["check", "--conf", str(empty), "--set", f"spark.jars={jar},/gone/spark-events-shim.jar"]) == 1
    _, gone = wrong(capsys.readouterr().out)
    assert gone.startswith("spark.jars: there is no file /gone/spark-events-shim.jar; the jar of this package is")


@pytest.mark.parametrize(
    ("python", "reason"),
    [
        ("/no/such/python", "it cannot be run: No such file or directory"),
        ("/bin/false", "it cannot import spark_events: it ended with code 1"),
    ],
)
def test_a_python_that_cannot_run_the_sidecar_is_told(
    conf: Path, capsys: pytest.CaptureFixture[str], python: str, reason: str
) -> None:
    """It is asked, not guessed."""
    assert main(["check", "--conf", str(conf), "--set", f"spark.events.python={python}"]) == 1
    assert wrong(capsys.readouterr().out) == [f"events.python: given {python!r}, {reason}"]
    assert main(["check", "--conf", str(conf), "--set", f"spark.events.python={sys.executable}"]) == 0


def test_a_python_may_be_given_as_a_reference(
    conf: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it stands for is asked, as the driver would; what is said quotes the reference alone."""
    asks = ["check", "--conf", str(conf), "--set", "spark.events.python=${env:OUR_PYTHON}"]
    monkeypatch.setenv("OUR_PYTHON", sys.executable)
    assert main(asks) == 0
    monkeypatch.setenv("OUR_PYTHON", "/no/such/python")
    capsys.readouterr()
    assert main(asks) == 1
    reason = "it cannot be run: No such file or directory"
    assert wrong(capsys.readouterr().out) == [f"events.python: given '${{env:OUR_PYTHON}}', {reason}"]
    monkeypatch.delenv("OUR_PYTHON")
    assert main(asks) == 1
    (missing,) = wrong(capsys.readouterr().out)
    assert "has no variable OUR_PYTHON" in missing


def test_the_file_is_the_one_that_spark_would_read(
    conf: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By SPARK_CONF_DIR; and one that is not there is said."""
    monkeypatch.setenv("SPARK_CONF_DIR", str(conf.parent))
    assert main(["check"]) == 0
    assert capsys.readouterr().out.startswith(f"{conf}:\n")
    monkeypatch.setenv("SPARK_CONF_DIR", "/no/such/folder")
    assert main(["check"]) == 1
    assert "cannot read /no/such/folder/spark-defaults.conf: No such file" in capsys.readouterr().err


def test_what_is_set_on_the_command_line_has_a_form(conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """KEY=VALUE, as with spark-submit."""
    assert main(["check", "--conf", str(conf), "--set", "events.required"]) == 2
    assert capsys.readouterr().err == "spark-events: --set: given 'events.required', allowed is KEY=VALUE\n"
