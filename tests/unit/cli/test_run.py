"""Tests of ``spark-events run`` with real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from fakes import eventually

from spark_events.cli import main
from spark_events.cli.run import RetryRule, run

#: Program that writes a verdict, as a sidecar does, and ends.
PROGRAM = """
import json, os, pathlib, signal, sys
verdict, ending = json.loads(sys.argv[1]), sys.argv[2]
tries = pathlib.Path(sys.argv[3])
tries.write_text(tries.read_text() + "x" if tries.exists() else "x")
if verdict:
    pathlib.Path(os.environ["SPARK_EVENTS_VERDICT"]).write_text(json.dumps(verdict))
if ending.startswith("SIG"):
    os.kill(os.getpid(), getattr(signal, ending))
sys.exit(int(ending))
"""
FAILED = {"outcome": "FAILED", "body": "shop: application failed", "class": "EXTERNAL_SYSTEM", "cause": "refused"}


def program(folder: Path, verdict: dict[str, Any], ending: object) -> list[str]:
    return [sys.executable, "-c", PROGRAM, json.dumps(verdict), str(ending), str(folder / "tries")]


@pytest.mark.parametrize(
    ("verdict", "ending", "code", "tries"),
    [
        ({"outcome": "FINISHED"}, 0, 0, 1),
        ({**FAILED, "retry_useful": True}, 1, 1, 3),
        ({**FAILED, "retry_useful": True}, 143, 143, 3),
        ({**FAILED, "retry_useful": False}, 1, 1, 1),
        (FAILED, 3, 3, 1),
        ({**FAILED, "retry_useful": True}, "SIGKILL", 137, 3),
        ({"outcome": "FINISHED"}, 5, 5, 1),
    ],
)
def test_only_what_a_rerun_helps_is_rerun(
    verdict: dict[str, Any], ending: object, code: int, tries: int, tmp_path: Path
) -> None:
    """The exit code is kept, and the pause doubles."""
    pauses: list[float] = []
    found = run(program(tmp_path, verdict, ending), RetryRule(2, 7.0), tmp_path / "kept.json", pauses.append)
    assert found == code
    assert (tmp_path / "tries").read_text() == "x" * tries
    assert pauses == [7.0, 14.0][: tries - 1]
    assert json.loads((tmp_path / "kept.json").read_text())["exit_code"] == code


def test_a_success_after_a_rerun_is_a_success(tmp_path: Path) -> None:
    script = tmp_path / "flaky.sh"
    script.write_text(
        f"""if [ -e {tmp_path}/second ]; then exit 0; fi
touch {tmp_path}/second
echo '{json.dumps({**FAILED, "retry_useful": True})}' > "$SPARK_EVENTS_VERDICT"
exit 1
"""
    )
    assert run(["sh", str(script)], RetryRule(1, 1.0), None, lambda _: None) == 0


@pytest.mark.parametrize(
    ("ending", "outcome", "body"),
    [
        ("SIGKILL", "LOST", "the program was killed by SIGKILL, and its sidecar wrote no verdict"),
        (4, "FAILED", "the program exited with 4, and no sidecar wrote a verdict"),
    ],
)
def test_without_a_verdict_the_exit_code_is_the_evidence(
    ending: object, outcome: str, body: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kept.json"
    run(program(tmp_path, {}, ending), RetryRule(2, 1.0), kept)
    verdict = json.loads(kept.read_text())
    assert (verdict["outcome"], verdict["body"]) == (outcome, body)
    assert "not rerun: unknown whether a rerun helps" in capsys.readouterr().err


def test_a_program_that_cannot_be_run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_events.cli.run._await_verdict", lambda _, code: {"outcome": "FAILED", "exit_code": code})
    assert main(["run", "--", "no-such-program-7"]) == 127
    assert "cannot run no-such-program-7: No such file" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_program_and_nothing_is_rerun(number: signal.Signals, tmp_path: Path) -> None:
    waiting = "import pathlib, sys, time; pathlib.Path(sys.argv[1]).touch(); time.sleep(600)"
    child = [sys.executable, "-c", waiting, str(tmp_path / "started")]
    command = [sys.executable, "-c", "from spark_events.cli import main; import sys; sys.exit(main())", "run"]
    process = subprocess.Popen([*command, "--retry", "transient=3", "--", *child], env=os.environ)
    timer = threading.Timer(120, process.kill)
    timer.start()
    try:
        eventually((tmp_path / "started").exists)
        process.send_signal(number)
        assert process.wait() in (128 + number, 1, 130)
    finally:
        timer.cancel()


@pytest.mark.parametrize("rule", ["3", "transient=0", "permanent=1", "transient=1,backoff=soon", "transient=1,x=2"])
def test_a_wrong_rule_is_rejected(rule: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--retry", rule, "--", "true"])
    assert "--retry" in capsys.readouterr().err


def test_a_missing_program_is_pointed_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run"]) == 2
    assert "spark-events run -- spark-submit job.py" in capsys.readouterr().err
