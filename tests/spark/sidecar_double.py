"""Test double of the sidecar, which the shim starts through ``spark.events.python``.

An argument selects the behavior of the double, which records each start and every received record in its folder.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
import time
from pathlib import Path
from typing import Any

STATS = {
    "audit": {
        "accepted": 10,
        "delivered": 9,
        "dropped": 1,
        "failures": 2,
        "latency_ms": 1.5,
        "latency_p50_ms": 1.25,
        "latency_p99_ms": 7.5,
        "queue_usage": 0.5,
        "breaker": "open",
        "spooled": 4,
        "oldest_age_ms": 250,
        "of_a_newer_version": {"a": [1]},
    },
    "on-call": {"delivered": 7},
}


def make(folder: Path, how: str) -> dict[str, str]:
    """Create the script that starts the double, and return the settings for the shim."""
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "double"
    paths = [str(Path(__file__).parent)]
    script.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path[:0] = {paths!r}\n"
        f"import sidecar_double\nsidecar_double.play({str(folder)!r}, {how!r})\n",
        encoding="utf-8",
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return {"spark.events.python": str(script)}


def starts(folder: Path) -> int:
    """Return how many doubles have started."""
    diary = folder / "starts"
    return len(diary.read_text().splitlines()) if diary.exists() else 0


def records(folder: Path) -> list[dict[str, Any]]:
    """Return the received records. Skip an incomplete last line."""
    diary = folder / "records"
    return [json.loads(line) for line in diary.read_bytes().split(b"\n")[:-1]] if diary.exists() else []


def _say(**answer: Any) -> None:
    os.write(1, json.dumps(answer).encode() + b"\n")


def _note(folder: str, line: str) -> None:
    with open(os.path.join(folder, "records"), "a") as diary:
        diary.write(line)


def play(folder: str, how: str) -> None:
    """Run the double."""
    with open(os.path.join(folder, "starts"), "a") as diary:
        print(os.getpid(), file=diary)
    if how == "hangs":
        while True:
            time.sleep(60)
    if how.startswith("starts badly"):
        _start_badly(starts(Path(folder)), recovers=how == "starts badly")
    hello = sys.stdin.readline()
    assert json.loads(hello)["kind"] == "hello"
    if how == "starts badly" and starts(Path(folder)) == 5:
        _note(folder, sys.stdin.readline())
    _say(kind="ready", version="0", pid=os.getpid())
    if how == "talks":
        _say(kind="stats", reporters=STATS, surprise=True)
        _say(kind="of_a_newer_version", x=1)
        os.write(1, b"null\n[]\n17\nnot json\n" + b'{"kind":"ack"}\n{"kind":"stats","reporters":7}\n')
    for line in sys.stdin:
        _note(folder, line)
        record = json.loads(line)
        if how == "dies of jobs" and record["kind"] == "job_start":
            os._exit(9)
        if how.startswith("starts badly") and record["kind"] == "job_start" and starts(Path(folder)) == 2:
            os._exit(9)
        if how == "dies twice of jobs" and record["kind"] == "job_start" and starts(Path(folder)) < 3:
            os._exit(9)
        if how == "is slow":
            time.sleep(0.2)
        if record.get("seq"):
            _say(kind="ack", seq=record["seq"], sequence=record["seq"] + 1)
        if record["kind"] == "goodbye":
            break


def _start_badly(start: int, *, recovers: bool) -> None:
    """Let some starts fail early, and return for all others.

    The first start is killed, and the third exits with an error. If ``recovers``, the fourth is killed after the
    greeting; otherwise, every start after the third also exits with an error.
    """
    if start == 1 or (start == 4 and recovers):
        if start == 4:
            sys.stdin.readline()
        os.kill(os.getpid(), signal.SIGKILL)
    if start == 3 or (start > 2 and not recovers):
        sys.exit("its package is being replaced")
