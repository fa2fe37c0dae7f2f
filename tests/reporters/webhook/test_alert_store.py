"""Tests of the stored alerts: full and read-only disks, damaged and expired files, limits of memory."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from reporters.webhook.sending import KEY, MINUTE, NOW, Sending, recovery
from spark_events.reporters.alerts.alert_files import AlertFiles
from spark_events.reporters.alerts.pagerduty import pagerduty
from spark_events.reporters.alerts.slack import SLACK
from spark_events.reporters.alerts.states import AlertsConfig

PAGERDUTY = pagerduty("R")
DAY = 1440 * MINUTE


class Disk(AlertFiles):
    """Files of alerts; ``broken`` contains the operations that fail."""

    broken: tuple[str, ...] = ()

    def __init__(self, folder: Path) -> None:
        super().__init__("destination", folder)

    def read(self, key: str) -> bytes | None:
        self._fail("read")
        return super().read(key)

    def write(self, key: str, content: bytes) -> None:
        self._fail("write")
        super().write(key, content)

    def delete(self, path: Path) -> None:
        self._fail("delete")
        super().delete(path)

    def _fail(self, operation: str) -> None:
        if operation in self.broken:
            raise OSError(errno.ENOSPC, f"cannot {operation}")


FULL, READ_ONLY, GONE = ("write",), ("write", "delete"), ("read", "write", "delete")


def actions(sending: Sending) -> list[str]:
    return [body["event_action"] for body in sending.bodies]


@pytest.mark.parametrize("broken", [FULL, READ_ONLY, GONE])
def test_later_failures_of_an_open_alert_are_counted_on_a_broken_disk(broken: tuple[str, ...], tmp_path: Path) -> None:
    """After the disk has failed, one failure of each cooldown is sent, and the recovery closes the alert."""
    disk = Disk(tmp_path)
    with Sending(PAGERDUTY, files=disk) as run:
        run.fail()
        disk.broken = broken
        run.passes(10 * MINUTE)
        for _ in range(10):
            run.passes(50)
            run.fail()
        assert actions(run) == ["trigger"] * 2
        run.passes(20 * MINUTE)
        run.recover()
        assert actions(run)[2:] == ["resolve"]


@pytest.mark.parametrize("broken", [("delete",), FULL, READ_ONLY, GONE])
def test_a_failure_after_a_recovery_is_sent_on_a_broken_disk(broken: tuple[str, ...], tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    with Sending(PAGERDUTY, files=disk) as run:
        run.fail()
        disk.broken = broken
        run.recover()
        run.fail()
        assert actions(run) == ["trigger", "resolve", "trigger"]


@pytest.mark.parametrize("broken", [FULL, READ_ONLY])
def test_a_file_that_cannot_be_updated_suppresses_no_failure_of_the_next_process(
    broken: tuple[str, ...], tmp_path: Path
) -> None:
    disk = Disk(tmp_path)
    with Sending(PAGERDUTY, files=disk) as run:
        run.fail()
        disk.broken = broken
        run.recover()
    next_disk = Disk(tmp_path)
    next_disk.broken = broken
    with Sending(PAGERDUTY, files=next_disk, loop=run.loop) as next_run:
        next_run.fail()
        next_run.fail()
        assert actions(next_run) == ["trigger"]


def test_a_closed_alert_is_not_open_on_a_full_disk(tmp_path: Path) -> None:
    """A file can be deleted even if no file can be written."""
    disk = Disk(tmp_path)
    with Sending(PAGERDUTY, files=disk) as run:
        run.fail()
        disk.broken = FULL
        run.recover()
    with Sending(PAGERDUTY, tmp_path, loop=run.loop) as next_run:
        next_run.fail()
        assert actions(next_run) == ["trigger"]


@pytest.mark.parametrize("occasion", ["end", "event"])
def test_a_change_is_written_when_the_disk_works_again(occasion: str, tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    with Sending(PAGERDUTY, files=disk) as run:
        run.fail()
        disk.broken = READ_ONLY
        run.recover()
        disk.broken = ()
        if occasion == "end":
            run.close()
        else:
            run.fail("other/failure")
    with Sending(PAGERDUTY, tmp_path, loop=run.loop) as next_run:
        next_run.fail()
        assert actions(next_run) == ["trigger"]


def test_without_a_folder_only_a_chat_misses_recoveries_of_earlier_runs(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    with Sending(SLACK, blocked / "alerts") as run:
        run.fail()
        run.fail()
        run.recover()
        assert len(run.bodies) == 2
    for form, requests in ((SLACK, 0), (PAGERDUTY, 1)):
        with Sending(form, blocked / "alerts") as next_run:
            next_run.recover()
            assert len(next_run.bodies) == requests


@pytest.mark.parametrize(("verb", "broken"), [("store", FULL), ("read", ("read",))])
def test_a_broken_disk_is_logged_once(
    verb: str, broken: tuple[str, ...], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Disk(tmp_path)
    with Sending(SLACK, files=disk) as run:
        run.fail()
        disk.broken = broken
        for _ in range(2):
            run.passes(20 * MINUTE)
            run.fail()
            run.passes(20 * MINUTE)
            run.recover()
    (message,) = caplog.messages
    assert message.startswith(f"cannot {verb} files of alerts: [Errno {errno.ENOSPC}] cannot ")
    assert message.endswith(f"check the files and the permissions of {tmp_path}")


def test_expired_files_that_cannot_be_deleted_are_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Sending(SLACK, tmp_path) as run:
        for number in range(2):
            run.fail(f"shop/query={number}/failure")
    disk = Disk(tmp_path)
    disk.broken = ("delete",)
    with Sending(SLACK, files=disk, start=NOW + 8 * DAY):
        (message,) = caplog.messages
    assert message.startswith(f"cannot delete files of alerts: [Errno {errno.ENOSPC}] cannot ")


def test_a_damaged_file_is_logged_and_replaced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Sending(SLACK, tmp_path) as run:
        run.fail()
        (file,) = tmp_path.iterdir()
        file.write_bytes(b"{")
        run.fail()
        run.fail()
        assert len(run.bodies) == 2
    assert [message.partition(":")[0] for message in caplog.messages] == ["cannot read files of alerts"]
    assert json.loads(file.read_bytes())["key"] == KEY


def test_only_expired_files_of_alerts_are_deleted(tmp_path: Path) -> None:
    """Neither foreign files nor alerts of a reporter with a longer expiry are deleted; clocks may differ by an hour."""
    for name in ("dashboard.json", "0123.json", f"{0:032X}a.json"):
        (tmp_path / name).write_text("{}")
    for key, days in (("a/failure", 30.0), ("b/failure", 1.0)):
        with Sending(PAGERDUTY, tmp_path, config=AlertsConfig(expires_after=days * DAY)) as run:
            run.fail(key)
    damaged = tmp_path / f"{0:032x}.json"
    damaged.write_bytes(b"{")
    os.utime(damaged, (NOW, NOW))
    kept = {file.name for file in tmp_path.iterdir()}
    for hours, deleted in ((24.5, 0), (25.5, 2)):
        hasty = AlertsConfig(expires_after=DAY)
        with Sending(PAGERDUTY, tmp_path, config=hasty, start=NOW + hours * 3600):
            assert len(kept - {file.name for file in tmp_path.iterdir()}) == deleted
    assert not damaged.exists()


def test_the_file_of_a_closed_alert_is_deleted_after_its_expiry(tmp_path: Path) -> None:
    with Sending(PAGERDUTY, tmp_path) as run:
        run.fail()
        run.recover()
    for days, files in ((6, 1), (8, 0)):
        with Sending(PAGERDUTY, tmp_path, start=NOW + days * DAY):
            assert len(list(tmp_path.iterdir())) == files


def test_a_process_that_runs_deletes_expired_files_once_a_day(tmp_path: Path) -> None:
    """A watcher reports many applications with different names, and no other process opens its folder."""
    with Sending(PAGERDUTY, tmp_path) as run:
        for number in range(20):
            run.fail(f"nightly-{number}/failure")
            run.passes(DAY)
            run.recover(f"nightly-{number}/failure")
            assert len(list(tmp_path.iterdir())) <= 9
        run.fail("nightly-19/failure")
        assert run.bodies[-1]["payload"]["custom_details"]["Times"].startswith("2nd time since ")


def test_the_daily_deletion_spares_deferred_recoveries_and_newer_alerts_in_memory(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    with Sending(PAGERDUTY, files=disk) as run:
        run.fail("old/failure")
        disk.broken = FULL
        for _ in range(10):
            run.passes(DAY)
            run.fail("old/failure")
        disk.broken = ()
        for _ in range(2):
            run.fail()
            run.recover()
        run.fail("old/failure")
        run.recover("old/failure")
        assert actions(run) == ["trigger"] * 11 + ["trigger", "resolve", "trigger", "resolve"]
        run.close()
        assert actions(run)[-1] == "resolve"


def test_files_of_earlier_versions_are_continued(tmp_path: Path) -> None:
    """Those files lack the number of openings."""
    with Sending(SLACK, tmp_path) as run:
        run.fail()
        (file,) = tmp_path.iterdir()
        old = {
            name: value for name, value in json.loads(file.read_bytes()).items() if name not in ("times", "first_at")
        }
        file.write_text(json.dumps(old))
        run.passes(20 * MINUTE)
        run.recover()
        run.passes(60 * MINUTE)
        run.fail()
    assert "2nd time since 2027-01-15 08:00 UTC" in json.dumps(run.bodies[-1])


def test_a_deferred_recovery_is_sent_however_late_the_next_process_starts(tmp_path: Path) -> None:
    with Sending(PAGERDUTY, tmp_path) as run:
        for _ in range(2):
            run.fail()
            run.recover()
    with Sending(PAGERDUTY, tmp_path, start=NOW + 30 * DAY) as next_run:
        next_run.passes(1)
        assert actions(next_run) == ["resolve"]


def test_the_file_of_a_recovery_of_many_alerts_is_small(tmp_path: Path) -> None:
    keys = [f"shop/group={number}/failure" for number in range(200)]
    with Sending(PAGERDUTY, tmp_path) as run:
        for key in keys[:2]:
            for _ in range(2):
                run.fail(key)
                run.send(recovery(run.wall, "shop/failure", *keys))
        assert max(file.stat().st_size for file in tmp_path.iterdir()) < 2_000


def test_alerts_in_memory_are_bounded() -> None:
    """Beyond the limit, the alert with the oldest change is forgotten."""
    with Sending(SLACK, config=AlertsConfig(most_known=2)) as run:
        for number in (1, 2, 3, 1, 3):
            run.fail(f"shop/query={number}/failure")
        assert len(run.bodies) == 4


def test_open_alerts_outlive_closed_ones_in_memory() -> None:
    with Sending(SLACK, config=AlertsConfig(most_known=2)) as run:
        run.fail("open/failure")
        for number in range(5):
            run.fail(f"shop/query={number}/failure")
            run.recover(f"shop/query={number}/failure")
        run.recover("open/failure")
        assert run.bodies[-1]["text"] == "Recovered: shop: open/failure"
