"""Tests that the settings and programs in docs/questions.md work."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
from fakes import ROOT

import spark_events
from spark_events.cli import main
from spark_events.cli.conf import lines
from spark_events.event import encode_lines

PAGE = (ROOT / "docs/questions.md").read_text(encoding="utf-8")
BLOCKS = [
    block
    for block in re.findall(r"^```\w*\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    if re.search(r"^(--conf )?spark\.events\.", block, re.MULTILINE)
]
MAIL = "ada@example.com"


def program(name: str, folder: Path) -> Path:
    code = re.search(rf"```python\n(# {name}.*?)```", PAGE, re.DOTALL)
    assert code is not None
    path = folder / name
    path.write_text(code[1])
    return path


def failure(app: str, retry_useful: bool | None, scope: str = "spark.application") -> spark_events.Event:
    builder = spark_events.EventBuilder(scope, "JobFailureEvent").set_attribute("spark.app.name", app)
    return (builder if retry_useful is None else builder.set_attribute("failure.retry_useful", retry_useful)).build()


def test_the_page_answers_at_least_20_questions_in_2000_words() -> None:
    headings = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
    assert len(headings) >= 20
    assert [heading for heading in headings if not heading.endswith("?")] == []
    assert len(PAGE.split()) <= 2_000


@pytest.mark.parametrize("block", BLOCKS)
def test_the_settings_of_an_answer_are_valid(
    block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program("masking.py", tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    own = block.replace("--conf ", "").replace("min-severity=", "min-severity ").splitlines()
    of_the_pager = ["spark.events.reporter.page.type log"] if "reporter.page" in block else []
    conf = tmp_path / "spark-defaults.conf"
    conf.write_text("\n".join([*lines(), *of_the_pager, *own]).replace("/var/log/spark", str(tmp_path)))
    assert main(["check", "--conf", str(conf)]) == 0, capsys.readouterr().out


def test_there_are_answers_with_settings() -> None:
    """Control: the page contains settings."""
    assert len(BLOCKS) >= 3


def test_the_masking_reporter_hides_addresses_in_body_and_attributes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file contains no address, and every other value of the event is unchanged."""
    program("masking.py", tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    masking = importlib.import_module("masking")
    path = tmp_path / "events.jsonl"
    event = (
        spark_events.EventBuilder("spark.job", "JobFailureEvent")
        .set_body(f"shop: job 3 failed: no country of {MAIL}.")
        .set_attribute("exception.stacktrace", f"line 1\n{MAIL}\nline 3")
        .set_attribute("spark.job.id", 3)
        .build()
    )
    reporter = masking.MaskedFile(masking.MaskedFile.Config(path=str(path)))
    reporter.open()
    reporter.report([event])
    reporter.close()
    [read] = spark_events.read(path)
    assert MAIL not in path.read_text()
    assert read.body.startswith("shop: job 3 failed: no country of ***")
    assert read.attributes == {"exception.stacktrace": "line 1\n***\nline 3", "spark.job.id": 3}
    assert read.event_id == event.event_id


@pytest.mark.parametrize(
    ("failures", "code"),
    [
        ([], 1),
        ([failure("orders", True)], 0),
        ([failure("orders", False)], 1),
        ([failure("orders", None)], 1),
        ([failure("orders", False), failure("orders", True), failure("shop", False)], 0),
        ([failure("orders", True), failure("orders", False)], 1),
        ([failure("orders", True, "spark.job")], 1),
    ],
)
def test_only_a_transient_failure_is_rerun(failures: list[spark_events.Event], code: int, tmp_path: Path) -> None:
    """The last failure of the application decides; jobs and other applications do not."""
    path = tmp_path / "events.jsonl"
    path.write_bytes(encode_lines(failures))
    command = [sys.executable, str(program("transient.py", tmp_path)), str(path), "orders"]
    assert subprocess.run(command, check=False, capture_output=True).returncode == code


def test_only_the_documented_places_listen() -> None:
    """A new port has to be added to the table of ports, and here."""
    listens = re.compile(r"\.listen\(\d|start_server\(|start_unix_server\(|create_server\(|ServerSocket|HTTPServer")
    sources = [*ROOT.glob("spark_events/**/*.py"), *ROOT.glob("jvm-shim/src/main/**/*.java")]
    found = {str(path.relative_to(ROOT)) for path in sources if listens.search(path.read_text(encoding="utf-8"))}
    assert found == {
        "spark_events/enrichment/driver/channel_server.py",
        "spark_events/report/serve.py",
        "spark_events/sidecar/python_stacks.py",
    }
