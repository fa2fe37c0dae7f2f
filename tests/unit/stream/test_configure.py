"""Tests of the Spark settings that ``configure`` sets for its reporters and settings."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from spark_events import ConfigError, MemoryReporter, Reporter, SessionError, configure, jar_path, spark_conf
from spark_events.stream.reporter_arguments import given


class Own(Reporter):
    """User-defined reporter in an importable module."""

    def report(self, events: Any) -> None:
        return


class Builder:
    """Test double of PySpark's builder with the methods that `configure` uses."""

    def __init__(self, **options: str) -> None:
        self._options = {key.replace("_", "."): value for key, value in options.items()}

    def config(self, key: str, value: str) -> Builder:
        self._options[key] = value
        return self


@pytest.fixture(autouse=True)
def no_defaults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Use a spark-defaults.conf in a temporary folder."""
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    return tmp_path


def test_the_default_is_one_log_reporter() -> None:
    """By default, `configure` sets the listener, the jar, this Python and one log reporter. Spark never waits."""
    assert spark_conf() == {
        "spark.extraListeners": "io.sparkevents.EventsListener",
        "spark.driver.extraClassPath": jar_path(),
        "spark.events.dispatcher.type": "async-queued",
        "spark.events.python": sys.executable,
        "spark.events.sidecar.enabled": "true",
    }


def test_reporters_by_name() -> None:
    """Named reporters may be given as types, as classes, or as nested keys with values of any type."""
    audit = {
        "type": "file",
        "path": Path("/tmp/e.jsonl"),
        "timeout": timedelta(seconds=1.5),
        "filter": {"min-severity": "WARN", "includes": "*:Job*"},
        "batch.size": 7,
    }
    conf = spark_conf({"audit": audit, "console": "log", "mine": Own}, "sync")
    assert conf["spark.events.reporters"] == "audit,console,mine"
    assert conf["spark.events.dispatcher.type"] == "sync"
    assert {key: value for key, value in conf.items() if ".reporter." in key} == {
        "spark.events.reporter.audit.type": "file",
        "spark.events.reporter.audit.path": "/tmp/e.jsonl",
        "spark.events.reporter.audit.timeout": "1500ms",
        "spark.events.reporter.audit.filter.min-severity": "WARN",
        "spark.events.reporter.audit.filter.includes": "*:Job*",
        "spark.events.reporter.audit.batch.size": "7",
        "spark.events.reporter.console.type": "log",
        "spark.events.reporter.mine.type": f"{__name__}:Own",
    }


def test_reporters_in_a_list_are_named_by_type() -> None:
    """Reporters in a list get the names of their types. Reporters of the same type are numbered."""
    found = given(["log", {"type": "log", "format": "json"}, Own, MemoryReporter(), MemoryReporter()])
    assert found.names == ("log", "log-2", "own", "memory", "memory-2")
    assert set(found.own) == {"memory", "memory-2"}
    assert isinstance(found.own["memory"](), MemoryReporter)


def test_a_class_without_an_import_path_stays_in_this_process() -> None:
    """A class without an import path, for example in a notebook cell, works only with a stream in this process."""

    class Local(Own):
        pass

    found = given([Local])
    assert isinstance(found.own["local"](), Local)
    with pytest.raises(ConfigError, match="'local' is an object, or its class cannot be imported by path"):
        spark_conf([Local])


@pytest.mark.parametrize("key", ["shutdown.timeout", "events.shutdown.timeout", "spark.events.shutdown.timeout"])
def test_settings_in_any_form(key: str) -> None:
    """A setting may be given with or without its prefix in spark-defaults.conf."""
    assert spark_conf(settings={key: "3s"})["spark.events.shutdown.timeout"] == "3s"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"reporters": {"a": "flie"}}, "events.reporter.a.type: given 'flie'"),
        ({"reporters": {"a": {"type": "file"}}}, "events.reporter.a.path: required, but not set"),
        ({"reporters": {"a.b": "log"}}, "reporters: given the name 'a.b', expected a str without dots"),
        ({"reporters": {"a": 3}}, "reporters: given 3 for 'a', expected a type such as 'file'"),
        ({"reporters": 3}, "reporters: given 3, expected a list of reporters, or a dict of reporters by name"),
        ({"reporters": {"a": {"type": "file", "path": None}}}, "events.reporter.a.path: given None, expected"),
        ({"reporters": {"a": {3: "x"}}}, "events.reporter.a: given the key 3, expected a str"),
        ({"dispatcher": "fast"}, "events.dispatcher.type: given 'fast', expected one of sync, async-queued"),
        (
            {"settings": {"dispatcher.type": "sync"}},
            "settings: given events.dispatcher.type, which has its own argument; pass dispatcher",
        ),
        (
            {"settings": {"sidecar": {"enabled": False}}, "sidecar": True},
            "settings: given events.sidecar.enabled, which has its own argument; pass sidecar",
        ),
        (
            {"settings": {"spark.events.reporters": "a"}, "reporters": {"b": "log"}},
            "settings: given events.reporters, which has its own argument; pass reporters",
        ),
        ({"settings": {"shutdwon.timeout": "3s"}}, "did you mean events.shutdown.timeout?"),
    ],
)
def test_an_invalid_setting_raises_immediately(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        spark_conf(**arguments)
    assert message in str(caught.value)


def test_configure_keeps_existing_listeners_and_jars(no_defaults: Path) -> None:
    """Existing listeners and jars, in the builder or in spark-defaults.conf, stay. A second call changes nothing."""
    (no_defaults / "spark-defaults.conf").write_text(
        "spark.extraListeners  com.example.Other\nspark.driver.extraClassPath  /theirs.jar\n"
    )
    builder = configure(configure(Builder()))
    assert builder._options["spark.extraListeners"] == "com.example.Other,io.sparkevents.EventsListener"
    assert builder._options["spark.driver.extraClassPath"] == f"/theirs.jar:{jar_path()}"
    builder = configure(Builder(spark_extraListeners="com.example.Third"))
    assert builder._options["spark.extraListeners"] == "com.example.Third,io.sparkevents.EventsListener"


def test_a_connect_client_is_referred_to_the_server_s_configuration() -> None:
    """For a Connect client, the error refers to the server, where the listener must be configured."""
    with pytest.raises(SessionError, match="cannot install the listener, which runs in the server"):
        configure(Builder(spark_remote="sc://localhost"))
