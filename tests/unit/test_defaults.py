"""Tests of the parser for spark-defaults.conf, which is a Java properties file."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_events.config.defaults import default_path, read_settings
from spark_events.errors import SparkEventsError


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("events.x.y  a b", "a b"),
        ("events.x.y=a=b", "a=b"),
        ("events.x.y = a", "a"),
        ("events.x.y:a", "a"),
        ("  events.x.y\ta  ", "a"),
        ("events.x.y", ""),
        ("events.x.y a \\\n      b", "a b"),
        ("events.x.y C\\:\\\\logs", "C:\\logs"),
        ("events.x.y \\u00e9\\t!", "é\t!"),
        ("spark.events.x.y a", "a"),
        ("events.x.y a\nspark.events.x.y b", "b"),
        ("spark.events.x.y b\nevents.x.y a", "b"),
        ("# events.x.y no\n! events.x.y no\nevents.x.y a", "a"),
        ("events.x.y a\r\nevents.x.z b\r\n", "a"),
    ],
)
def test_properties_are_parsed_like_java_s(tmp_path: Path, line: str, value: str) -> None:
    """Separators, continuations, escapes and comments are parsed as in Java. spark.events.* overrides events.*."""
    path = tmp_path / "spark-defaults.conf"
    path.write_text(line, encoding="utf-8", newline="")
    assert read_settings(path).value("events.x.y") == value


def test_foreign_and_removed_keys_are_ignored(tmp_path: Path) -> None:
    """Spark's keys, and keys that the caller removes, are ignored. Keys that the caller adds override the file."""
    path = tmp_path / "spark-defaults.conf"
    path.write_text("spark.master yarn\nevents.a.b 1\nevents.c.d 2\nspark.events.e.f 3\n", encoding="utf-8")
    settings = read_settings(path, without=("events.c.",), extra={"events.e.f": "4"})
    assert settings.value("events.a.b") == "1"
    assert settings.value("events.c.d") is None
    assert settings.value("events.e.f") == "4"
    assert settings.value("master") is None


def test_an_unreadable_file_is_reported(tmp_path: Path) -> None:
    """The error about an unreadable file is one sentence with the name of the file."""
    with pytest.raises(SparkEventsError, match=r"cannot read .*nowhere: No such file"):
        read_settings(tmp_path / "nowhere")


def test_the_file_is_searched_in_spark_s_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is searched in SPARK_CONF_DIR, in the conf folder of SPARK_HOME, and in PySpark's conf folder."""
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    found = default_path()
    assert found is not None
    assert found.parts[-3:] == ("pyspark", "conf", "spark-defaults.conf")
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    assert default_path() == Path("/opt/spark/conf/spark-defaults.conf")
    monkeypatch.setenv("SPARK_CONF_DIR", "/etc/spark")
    assert default_path() == Path("/etc/spark/spark-defaults.conf")
