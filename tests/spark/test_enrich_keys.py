"""Tests of idempotency keys of a batch that runs again after a crash of the driver and a change of the schema."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from enrich_service import EnrichService, rule
from spark.harness import Lab, Run, committed, file_reporter, two_lines, wait_for

pytestmark = [pytest.mark.spark, pytest.mark.any_spark, pytest.mark.faults, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnrichService]:
    with EnrichService(tmp_path_factory.mktemp("service") / "calls.jsonl") as started:
        yield started


def keys(service: EnrichService) -> dict[str, str]:
    """Return the idempotency key of each call, and verify that repeated calls have the same key."""
    pairs = {(call.key, call.idempotency_key) for call in service.calls()}
    assert len(pairs) == len({key for key, _ in pairs})
    return dict(pairs)


def test_keys_survive_a_kill_and_a_new_column(lab: Lab, service: EnrichService, tmp_path: Path) -> None:
    """Keys depend on the columns that the function reads, and on the name of the enrichment.

    The driver is killed during a batch, which runs again with another column. Only the enrichment that reads all
    columns gets other keys, and the log names it.
    """

    def start(schema: str) -> Run:
        defaults = {**two_lines(), **file_reporter(Path("{folder}/events.jsonl"), "async-queued")}
        return lab.start(
            "enrich_schema.py", str(service.port), str(tmp_path), schema, defaults=defaults,
            env={"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable},
        )  # fmt: skip

    service.script(rules=[rule("send-15", forever={"held": True})])
    first = start("id long")
    first.wait_for("the calls of the second batch", lambda: len(service.calls()) == 60)
    first.signal(first.driver(), signal.SIGKILL)
    assert first.wait() != 0
    wait_for("the end of the calls", lambda: all(call.ended is not None for call in service.calls()))
    assert committed(tmp_path / "checkpoint") == [0]
    before = keys(service)
    assert len(set(before.values())) == 60, "two enrichments of one batch have equal keys"

    service.script()
    second = start("id long, currency string")
    assert second.wait() == 0, second.tail()
    assert committed(tmp_path / "checkpoint") == [0, 1]
    after = keys(service)
    assert after.keys() == {f"{what}-{row}" for what in ("charge", "note", "send") for row in range(10, 20)}
    same = {call for call, key in after.items() if key == before[call]}
    assert same == {call for call in after if not call.startswith("note")}
    assert second.output.count("depends on all columns") == 1
    assert "ctx.idempotency_key of note_everything" in second.output
