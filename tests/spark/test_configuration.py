"""Tests of the sources of settings, and of invalid settings: one message, and the job continues."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from spark.harness import PATIENT, SMALL_SPARK, Lab, Run, file_reporter, two_lines

pytestmark = [pytest.mark.spark, pytest.mark.any_spark, pytest.mark.timeout(1800)]

NO_EVENTS = "[spark-events] no events will be reported"
FILE = file_reporter(Path("{folder}/events.jsonl"))
SECRET = "t0psecret"
NO_PYTHON = {"spark.events.python": "/nowhere/bin/python"}
NOT_REQUIRED = {"spark.events.required": "false"}


def only_two_lines(lab: Lab) -> Run:
    patient = {f"spark.{key}": value for key, value in PATIENT.items()}
    return lab.run("ending.py", small=two_lines(), conf={**SMALL_SPARK, **patient})


def three_sources(lab: Lab) -> Run:
    """Run with reporters a to d, whose paths are set in different combinations of file, --conf and program."""
    reporters = {f"events.reporter.{name}.type": "file" for name in "abcd"}
    defaults = {f"events.reporter.{name}.path": f"{{folder}}/{name}-defaults" for name in "abd"}
    conf = {f"spark.events.reporter.{name}.path": f"{{folder}}/{name}-conf" for name in "ac"}
    program = [f"spark.events.reporter.{name}.path={name}-builder" for name in "bc"]
    lines = {**two_lines(), **PATIENT, "events.dispatcher.type": "async-queued", **reporters, **defaults}
    lines |= {
        "events.summary.settings": "standard, spark.shop.region, spark.shop.api.token",
        "events.tags.team": "till",
    }
    conf |= {"spark.executor.memory": "640m", "spark.shop.region": "eu", "spark.shop.api.token": SECRET}
    return lab.run("ending.py", "stop", *program, defaults=lines, conf=conf)


def all_wrong(lab: Lab) -> Run:
    """Run with four errors: an unknown key, an invalid value, a missing value, and an unknown reporter."""
    lines = {
        **FILE,
        "events.reporters": "audit, nobody",
        "events.reporter.audit.pth": "/tmp/x",
        "events.reporter.second.timeout": "10",
        "events.dispatcher.type": "sync",
    }
    conf = {"spark.events.dispatcher.type": "asink"}
    return lab.run("ending.py", defaults={**two_lines(), **lines}, conf=conf)


def no_python(lab: Lab) -> Run:
    return lab.run("ending.py", defaults={**two_lines(), **FILE, **NO_PYTHON, "events.required": "true"})


def contexts(lab: Lab, settings: Mapping[str, Mapping[str, str]], **options: Any) -> dict[str, Run]:
    """Run consecutive contexts in one JVM. Return a run for each context, with the context's folder and log."""
    run = lab.run("configured.py", json.dumps(settings), **options)
    runs = {name: Run(run.folder / name, run.process, run.mark) for name in settings}
    _, *parts = re.split(r"^context (\S+)\n", run.log, flags=re.MULTILINE)
    assert parts[::2] == list(settings), run.tail()
    for part, own in zip(parts[1::2], runs.values(), strict=True):
        (own.folder / "stderr").write_text(part, encoding="utf-8")
    return runs


def broken_reporters(lab: Lab) -> dict[str, Run]:
    """Run a context without a Python for the sidecar, and two contexts with one broken reporter.

    Of the three reporters, one works, one has an unresolvable secret, and one is inactive. spark-defaults.conf requires
    events, and the program overrides this setting for two contexts.
    """
    lines = {
        **FILE,
        "events.required": "true",
        "events.shutdown.outcome-timeout": "0ms",
        "events.reporters": "audit, alerts",
        "events.reporter.alerts.type": "webhook",
        "events.reporter.alerts.url": "${env:NO_SUCH_VARIABLE}",
        "events.reporter.off.type": "no.such.module:Reporter",
        "events.reporter.off.token": "${env:NO_SUCH_VARIABLE}",
    }
    settings = {
        "no-such-python": {**NO_PYTHON, "spark.events.reporters": "audit", **NOT_REQUIRED},
        "required-one-broken": {},
        "one-broken": NOT_REQUIRED,
    }
    own = {
        name: {**given, "spark.events.reporter.audit.path": f"{{folder}}/{name}/events.jsonl"}
        for name, given in settings.items()
    }
    return contexts(lab, own, defaults={**two_lines(), **lines})


def broken_file(lab: Lab) -> dict[str, Run]:
    """Run contexts with an invalid spark-defaults.conf.

    spark-submit reads another file, because it would reject the invalid file.
    """
    lines = {**SMALL_SPARK, **two_lines(), "spark.events.required": "true"}
    good = lab.folder / "required.properties"
    good.write_text("".join(f"{key} {value}\n" for key, value in lines.items()), encoding="utf-8")
    program = ["spark-submit", "--properties-file", str(good)]
    defaults = "events.reporters audit\nevents.name \\u00g1\n"
    return contexts(lab, {"required-broken-file": {}, "broken-file": NOT_REQUIRED}, defaults=defaults, program=program)


def bare_python(lab: Lab) -> Path:
    """Return the path of a Python that has only the standard library."""
    environment = lab.folder / "bare"
    if not environment.exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    return environment / "bin" / "python"


def lonely_jar(lab: Lab) -> Run:
    away = lab.folder / "away" / "shim.jar"
    away.parent.mkdir()
    shutil.copy(two_lines()["spark.driver.extraClassPath"], away)
    python = str(bare_python(lab))
    return lab.run("ending.py", defaults={**two_lines(away), **FILE, "spark.events.python": python})


#: Texts that the driver's log must contain, by error in the settings.
MISTAKES = {
    "all-wrong": (
        "events.reporter.audit.pth: unknown key; set in",
        "did you mean events.reporter.audit.path?",
        "spark.events.dispatcher.type: given 'asink'",
        "expected one of sync, async-queued",
        "set in Spark's configuration",
        "events.reporters: given 'nobody'",
        "configured reporters: audit, second",
    ),
    "broken-file": ("cannot read", "spark-defaults.conf", "Malformed"),
    "no-such-python": (
        "No Python interpreter could run the sidecar",
        "/nowhere/bin/python (from spark.events.python)",
        "pip install spark-events",
    ),
    "jar-without-package": (
        "No module named 'spark_events'",
        "away/shim.jar is outside its package",
        "pip install spark-events",
    ),
}

#: Log message about the broken reporter in ``broken_reporters``; the message does not depend on other reporters.
BROKEN = "events.reporter.alerts.url: given '${env:NO_SUCH_VARIABLE}' (the sidecar's environment has no variable"


@pytest.fixture(scope="module")
def runs(lab: Lab) -> Callable[[str], Run]:
    """Run all jobs of this module, two at a time. Return a function that waits for the run with the given name."""
    jobs = {
        "two-lines": only_two_lines,
        "three-sources": three_sources,
        "all-wrong": all_wrong,
        "required-no-such-python": no_python,
        "jar-without-package": lonely_jar,
    }
    reporters, file = (lab.background(start, lab) for start in (broken_reporters, broken_file))
    alone = {name: lab.background(start, lab) for name, start in jobs.items()}

    def find(name: str) -> Run:
        if name in alone:
            return alone[name].result()
        return (file if name.endswith("broken-file") else reporters).result()[name]

    return find


def test_two_lines_are_sufficient(runs: Callable[[str], Run]) -> None:
    """If only the listener and the class path are set, the driver's log contains the events in the log's format."""
    run = runs("two-lines")
    assert run.process.returncode == 0, run.tail()
    assert " INFO  JobStatusChangeEvent: Application 'ending' started\n" in run.log
    assert " INFO  JobStatusChangeEvent: Application 'ending' finished" in run.log
    assert run.own_messages == []


def test_the_command_line_overrides_the_file(runs: Callable[[str], Run]) -> None:
    """spark.events.* in --conf overrides events.* in spark-defaults.conf. Other keys of the file apply."""
    folder = runs("three-sources").folder
    assert (folder / "a-conf").exists()
    assert not (folder / "a-defaults").exists()
    assert (folder / "d-defaults").exists()


def test_the_program_overrides_file_and_command_line(runs: Callable[[str], Run]) -> None:
    """spark.events.* in SparkSession.builder.config overrides --conf and the file, like Spark's keys."""
    folder = runs("three-sources").folder
    assert (folder / "b-builder").exists()
    assert not (folder / "b-defaults").exists()
    assert (folder / "c-builder").exists()
    assert not (folder / "c-conf").exists()


def test_the_start_of_an_application_has_the_settings_to_compare_and_the_tags(runs: Callable[[str], Run]) -> None:
    """``spark.events.summary.settings`` selects the settings. Spark's pattern of secret keys redacts their values."""
    run = runs("three-sources")
    written = run.folder / "a-conf"
    start = next(event for event in run.events(written) if event["name"] == "JobStatusChangeEvent")
    prefix = "spark.setting."
    found = {key.removeprefix(prefix): text for key, text in start["attributes"].items() if key.startswith(prefix)}
    assert found == {
        "master": "local[2]",
        "executor.memory": "640m",
        "sql.shuffle.partitions": "1",
        "shop.region": "eu",
        "shop.api.token": "*********(redacted)",
    }
    assert start["attributes"]["spark.tag.team"] == "till"
    assert SECRET not in written.read_text(encoding="utf-8")


def test_every_reporter_has_every_event(runs: Callable[[str], Run]) -> None:
    """Without events.reporters, all configured reporters are active and receive the same events."""
    run = runs("three-sources")
    written = [run.events(run.folder / name) for name in ("a-conf", "b-builder", "c-builder", "d-defaults")]
    assert len(written[0]) >= 2
    assert all(events == written[0] for events in written)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_an_invalid_setting_does_not_fail_the_job(runs: Callable[[str], Run], mistake: str) -> None:
    """The job succeeds although the spark-events settings contain an error."""
    run = runs(mistake)
    assert run.process.returncode == 0, run.tail()
    assert not (run.folder / "error").exists()
    assert (run.folder / "counted").exists()
    assert not run.events_path.exists()


@pytest.mark.parametrize("mistake", MISTAKES)
def test_an_invalid_setting_is_logged_once(runs: Callable[[str], Run], mistake: str) -> None:
    """An invalid setting causes one log message with the full key, the value, the allowed values and the source."""
    (message,) = runs(mistake).own_messages
    assert " ERROR " in message
    assert NO_EVENTS in message
    for part in MISTAKES[mistake]:
        assert part in message


def test_the_message_names_the_source_of_a_setting(runs: Callable[[str], Run]) -> None:
    """The message contains the key as written in spark-defaults.conf, and the path of the file."""
    run = runs("all-wrong")
    (message,) = run.own_messages
    assert f"set in {run.folder}/conf/spark-defaults.conf" in message


def test_a_broken_reporter_does_not_affect_others(runs: Callable[[str], Run]) -> None:
    """A broken reporter causes one logged error and one event. The working reporter receives all events."""
    run = runs("one-broken")
    assert run.process.returncode == 0, run.tail()
    assert not (run.folder / "error").exists()
    (message,) = run.own_messages
    assert " ERROR " in message
    assert "reporter 'alerts': disabled" in message
    assert BROKEN in message
    events = run.events()
    (change,) = [one for one in events if one["name"] == "ReporterStatusChangeEvent"]
    assert change["attributes"]["spark.events.reporter.name"] == "alerts"
    assert change["attributes"]["spark.status.new"] == "disabled"
    assert BROKEN in change["body"]
    assert [one["name"] for one in events[:1] + events[-1:]] == ["JobStatusChangeEvent", "DispatcherReportEvent"]


def test_a_broken_reporter_fails_an_application_with_required_events(runs: Callable[[str], Run]) -> None:
    """With spark.events.required=true, an application with a broken reporter does not start."""
    run = runs("required-one-broken")
    assert "spark.events.required is true" in (run.folder / "error").read_text(encoding="utf-8")
    assert not (run.folder / "counted").exists()
    assert "spark.events.required is true" in run.log
    assert BROKEN in run.log


@pytest.mark.parametrize("mistake", ["broken-file", "no-such-python"])
def test_an_invalid_setting_fails_an_application_with_required_events(runs: Callable[[str], Run], mistake: str) -> None:
    """With spark.events.required=true, an invalid setting stops the application at startup, with the same message."""
    run = runs(f"required-{mistake}")
    if mistake == "no-such-python":
        assert run.process.returncode != 0
    else:
        assert "spark.events.required is true" in (run.folder / "error").read_text(encoding="utf-8")
    assert not (run.folder / "counted").exists()
    assert "spark.events.required is true" in run.log
    for part in MISTAKES[mistake]:
        assert part in run.log
