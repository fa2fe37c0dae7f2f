"""Tests of reading many logs, in this process and in several processes."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from spark_events.event import Severity
from spark_events.records.event_log.log_files import EventLog, find_logs
from spark_events.translate.replays import LogCounts, ReplayTuning, Selection, replay_logs
from spark_events.translate.translation_config import TranslateConfig

FIXTURES = Path(__file__).parents[1] / "records" / "fixtures"
#: Starts processes for any two logs.
EAGER = ReplayTuning(least_bytes=1, ahead=1)


def read(logs: Iterable[EventLog], jobs: int, **selection: object) -> list[tuple[str, bytes, LogCounts]]:
    chosen = Selection(**selection)  # type: ignore[arg-type]
    found = replay_logs(logs, TranslateConfig(), chosen, jobs, EAGER)
    return [(one.log.path.name, b"".join(one.lines), one.counts) for one in found]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of several logs, one of them damaged, one empty and one unreadable after its listing."""
    target = tmp_path_factory.mktemp("logs")
    for number in range(3):
        shutil.copy(FIXTURES / "batch_udf-4.3.jsonl", target / f"local-{number}")
    shutil.copy(FIXTURES / "foreachbatch-4.3.jsonl", target / "local-4")
    content = (FIXTURES / "foreachbatch-4.3.jsonl").read_bytes().splitlines(keepends=True)
    (target / "local-5").write_bytes(b"".join([*content[:9], b"{damaged}\n" * 30, *content[9:]]))
    (target / "local-6").touch()
    return target


def test_processes_yield_the_same_in_the_same_order(folder: Path) -> None:
    logs = [*find_logs(folder), EventLog(folder / "gone", (folder / "gone",))]
    alone, together = read(logs, 1), read(iter(logs), 3)
    assert alone == together
    assert [name for name, _, _ in alone] == [log.path.name for log in logs]
    counts = {name: one for name, _, one in alone}
    assert (counts["local-5"].damaged, len(counts["local-5"].notes), counts["local-5"].unshown) == (30, 20, 10)
    assert (counts["gone"].unreadable, counts["local-4"].is_over, counts["local-6"].recognised) == (1, True, False)


def test_the_selection_applies_in_every_process(folder: Path) -> None:
    chosen = {"least": Severity.ERROR, "names": frozenset({"JobFailureEvent"})}
    alone, together = (read(find_logs(folder), jobs, **chosen) for jobs in (1, 2))
    assert alone == together
    assert sum(counts.events for _, _, counts in alone) == sum(text.count(b"\n") for _, text, _ in alone) > 0


def test_a_caller_may_stop_early(folder: Path) -> None:
    """The processes and their files are gone when a caller stops before the last log."""
    found = replay_logs(find_logs(folder), TranslateConfig(), Selection(), 2, EAGER)
    assert b"".join(next(found).lines)
    found.close()  # type: ignore[attr-defined]
    assert list(found) == []
