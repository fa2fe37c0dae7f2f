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

import psutil
import pytest
from fakes import eventually

from spark_events.cli import main
from spark_events.cli.run import RetryRule, run
from spark_events.cli.run_program import end_of

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


def test_the_verdict_s_folder_is_created_and_a_full_disk_keeps_the_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "verdicts" / "orders" / "1.json"
    assert run(program(tmp_path, FAILED, 3), RetryRule(), kept) == 3
    assert [one.name for one in kept.parent.iterdir()] == ["1.json"]
    assert run(program(tmp_path, FAILED, 3), RetryRule(), kept / "no-folder.json") == 3
    assert f"cannot write the verdict to {kept}/no-folder.json: Not a directory; the exit code is kept" in (
        capsys.readouterr().err.replace("File exists", "Not a directory")
    )


def test_a_success_after_a_rerun_is_a_success(tmp_path: Path) -> None:
    script = tmp_path / "flaky.sh"
    script.write_text(
        f"""if [ -e {tmp_path}/second ]; then exit 0; fi
touch {tmp_path}/second
echo '{json.dumps({**FAILED, "retry_useful": True})}' > "$SPARK_EVENTS_VERDICT"
exit 1
"""
    )
    kept, pauses = tmp_path / "kept.json", list[float]()
    assert run(["sh", str(script)], RetryRule(3, 7.0), kept, pauses.append) == 0
    assert pauses == [7.0]
    verdict = json.loads(kept.read_text())
    assert (verdict["outcome"], verdict["exit_code"]) == ("FINISHED", 0)
    assert verdict.keys().isdisjoint({"class", "cause", "retry_useful"})


@pytest.mark.parametrize(
    ("ending", "outcome", "body"),
    [
        (
            "SIGKILL",
            "LOST",
            "the program was killed by SIGKILL (exit code 137), by the kernel's out-of-memory killer or by a command;"
            " its sidecar wrote no verdict",
        ),
        ("SIGSEGV", "LOST", "the program was killed by SIGSEGV (exit code 139); its sidecar wrote no verdict"),
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


def test_a_program_that_cannot_be_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit codes are those of a shell, and nothing is rerun."""
    closed = tmp_path / "no-program"
    closed.touch()
    for program, code, reason in (("no-such-program-7", 127, "No such file"), (closed, 126, "Permission denied")):
        assert main(["run", "--retry", "transient=3", "--", str(program)]) == code
        shown = capsys.readouterr().err
        assert f"cannot run {program}: {reason}" in shown
        assert f"FAILED (exit code {code}): the program could not be started" in shown
        assert "not rerun: unknown whether a rerun helps" in shown


@pytest.mark.parametrize("outcome", ["FINISHED", "ENDED"])
def test_the_real_exit_code_corrects_an_outcome(outcome: str, tmp_path: Path) -> None:
    """The program failed after it had stopped its SparkContext."""
    kept = tmp_path / "kept.json"
    assert run(program(tmp_path, {"outcome": outcome, "application": "shop"}, 5), RetryRule(2), kept) == 5
    verdict = json.loads(kept.read_text())
    assert (verdict["outcome"], verdict["exit_code"], verdict["body"]) == ("FAILED", 5, "shop: exit code 5")


REFUSED = 'raise ConnectionRefusedError(111, "Connection refused")'
#: Programs that end with exit code 1, and the type of the exception that ended them; None: none did.
ENDINGS: dict[str, tuple[str, str | None]] = {
    "an exception": ("python a.py", "ConnectionRefusedError"),
    "another hook of the program": (
        "python -c 'import sys; show = sys.excepthook; sys.excepthook = lambda *a: show(*a); import a'",
        "ConnectionRefusedError",
    ),
    "the last of two programs": ("python b.py; python a.py", "ConnectionRefusedError"),
    "an earlier program": ("python a.py; python b.py; exit 1", None),
    "an exit code": ("python -c 'import sys; sys.exit(1)'", None),
    "an exception of a child": (
        "python -c 'import subprocess, sys; subprocess.run([sys.executable, \"a.py\"]); sys.exit(1)'", None,
    ),
    "an exception of a fork": (
        "python -c 'import os\nif os.fork(): os.wait(); os._exit(1)\nexec(open(\"a.py\").read())'", None,
    ),
    "a worker of Spark": ("SPARK_ENV_LOADED=1 python a.py", None),
    "a program of spark-submit": ("SPARK_ENV_LOADED=1 PYSPARK_GATEWAY_PORT=1 python a.py", "ConnectionRefusedError"),
}  # fmt: skip


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with two programs, which is the current folder, and put this Python first on the path."""
    (tmp_path / "a.py").write_text(f"def book():\n    {REFUSED}\nbook()\n")
    (tmp_path / "b.py").write_text("")
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    (bin_ / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (bin_ / "python").chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("how", ENDINGS)
def test_the_exception_of_a_program_without_spark(how: str, here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The exception that ended the last program of the command decides; the program's output is unchanged."""
    command, kind = ENDINGS[how]
    kept = here / "kept.json"
    assert run(["sh", "-c", command], RetryRule(), kept) == 1
    verdict = json.loads(kept.read_text())
    assert verdict.get("error_type") == kind
    output = capfd.readouterr().err
    if kind is not None:
        assert (verdict["class"], verdict["retry_useful"]) == ("EXTERNAL_SYSTEM", True)
        assert output.count("Traceback (most recent call last)") == 1
        assert output.count("ConnectionRefusedError: [Errno 111] Connection refused\n") == 1
        assert "spark-events:   Rerun: may help (EXTERNAL_SYSTEM)" in output
    if how == "an exception":
        assert verdict["location"] == f"{here}/a.py:2 in book"


@pytest.mark.parametrize(
    ("error", "is_lost"),
    [
        ('Py4JError("An error occurred while calling o23.sc")', True),
        ('Py4JError("An error occurred while calling o23.x. Trace: py4j.Py4JException: no method x")', False),
        ('Py4JError("shop.Missing does not exist in the JVM")', False),
        ('Py4JNetworkError("Answer from Java side is empty")', True),
        ('connect()', True),
        ('book()', False),
    ],
)  # fmt: skip
def test_a_lost_jvm_is_no_cause(error: str, is_lost: bool, here: Path) -> None:
    """The exception of a program whose JVM was killed says nothing about a rerun."""
    (here / "jvm.py").write_text(
        f"""
from py4j.protocol import Py4JError, Py4JNetworkError

exec(compile({"def connect():" + chr(10) + "    " + REFUSED!r}, "/opt/spark/py4j/clientserver.py", "exec"))

def book():
    {REFUSED}

raise {error}
"""
    )
    kept = here / "kept.json"
    assert run(["python", "jvm.py"], RetryRule(1), kept, lambda _: None) == 1
    verdict = json.loads(kept.read_text())
    assert verdict["outcome"] == ("LOST" if is_lost else "FAILED")
    assert ("retry_useful" in verdict) == (error == "book()")


def test_a_failure_after_the_driver_had_stopped_is_explained(here: Path) -> None:
    """The sidecar reported FINISHED before the program failed."""
    verdict = '{"outcome": "FINISHED", "application": "shop", "committed": {"clicks": {"batch": 4}}}'
    kept = here / "kept.json"
    run(["sh", "-c", f"echo '{verdict}' > $SPARK_EVENTS_VERDICT; python a.py"], RetryRule(), kept)
    found = json.loads(kept.read_text())
    assert (found["outcome"], found["class"], found["committed"]["clicks"]["batch"]) == ("FAILED", "EXTERNAL_SYSTEM", 4)


def test_exit_code_0_decides_an_end_that_the_sidecar_does_not_know(here: Path) -> None:
    """A sidecar that starts again while the program ends does not see the exit code."""
    ended = {"outcome": "ENDED", "application": "shop", "card": "shop ended after a failed job"}
    verdict = json.dumps({**FAILED, **ended})
    kept = here / "kept.json"
    assert run(["sh", "-c", f"echo '{verdict}' > $SPARK_EVENTS_VERDICT"], RetryRule(), kept) == 0
    found = json.loads(kept.read_text())
    assert found.pop("outcome") == "FINISHED"
    assert found == {"application": "shop", "body": "shop: exit code 0", "exit_code": 0}


@pytest.mark.parametrize("outcome", ["CANCELLED", "FAILED", "LOST"])
def test_exit_code_0_decides_nothing_that_the_sidecar_knows(outcome: str, here: Path) -> None:
    kept = here / "kept.json"
    verdict = json.dumps({**FAILED, "outcome": outcome})
    assert run(["sh", "-c", f"echo '{verdict}' > $SPARK_EVENTS_VERDICT"], RetryRule(), kept) == 0
    assert json.loads(kept.read_text())["outcome"] == outcome


def test_the_verdict_of_the_sidecar_comes_first(here: Path) -> None:
    verdict = json.dumps({**FAILED, "class": "DATA_ERROR", "retry_useful": False})
    kept = here / "kept.json"
    run(["sh", "-c", f"echo '{verdict}' > $SPARK_EVENTS_VERDICT; python a.py"], RetryRule(), kept)
    assert json.loads(kept.read_text())["class"] == "DATA_ERROR"


@pytest.mark.parametrize("path", [None, "{here}/mine", "{here}/mine:{here}/other"])
def test_the_program_s_python_is_as_without_the_command(
    path: str | None, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PYTHONPATH, sys.path and the user's own sitecustomize are those of a program without the command."""
    (here / "mine").mkdir()
    (here / "mine" / "sitecustomize.py").write_text("import builtins\nbuiltins.mine = True\n")
    show = (
        "import builtins, json, os, sys; names = [n for n in os.environ if 'EXCEPTION' in n];"
        "open(sys.argv[1], 'w').write(json.dumps([os.environ.get('PYTHONPATH'), sys.path, names,"
        " hasattr(builtins, 'mine')]))"
    )
    if path is None:
        monkeypatch.delenv("PYTHONPATH", raising=False)
    else:
        monkeypatch.setenv("PYTHONPATH", path.format(here=here))
    assert run([sys.executable, "-c", show, "with"], RetryRule(), None) == 0
    subprocess.run([sys.executable, "-c", show, "without"], check=True)
    assert json.loads((here / "with").read_text()) == json.loads((here / "without").read_text())


def test_ctrl_c_reaches_the_program_once(tmp_path: Path) -> None:
    """The terminal sends the signal to the whole group, so the command does not pass it on."""
    counting = (
        "import pathlib, signal, sys, time\n"
        "folder, seen = pathlib.Path(sys.argv[1]), []\n"
        "signal.signal(signal.SIGINT, lambda *_: seen.append(1))\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(len(seen)))\n"
        "(folder / 'started').touch()\n"
        "while True:\n"
        "    if seen: (folder / 'seen').touch()\n"
        "    time.sleep(0.05)\n"
    )
    (tmp_path / "count.py").write_text(counting)
    command = "from spark_events.cli import main; import sys; sys.exit(main())"
    (tmp_path / "go").write_text(
        f"""exec {sys.executable} -c '{command}' run --verdict {tmp_path}/kept.json -- \
{sys.executable} {tmp_path}/count.py {tmp_path}"""
    )
    # Without `exec`, a shell such as dash stays between `script` and the command, and would get the signal below.
    terminal = subprocess.Popen(["script", "-qec", f"exec sh {tmp_path}/go", "/dev/null"], stdin=subprocess.PIPE)
    try:
        assert terminal.stdin is not None
        eventually((tmp_path / "started").exists)
        terminal.stdin.write(b"\x03")
        terminal.stdin.flush()
        eventually((tmp_path / "seen").exists)
        [child] = psutil.Process(terminal.pid).children()
        child.terminate()
        terminal.wait(120)
    finally:
        terminal.kill()
        terminal.wait()
    assert json.loads((tmp_path / "kept.json").read_text())["exit_code"] == 1


def test_a_signal_before_the_program_is_known_reaches_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program may be at work, and a signal may arrive, before the command that started it continues."""
    start = subprocess.Popen

    def start_and_signal(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        process = start(command, **options)
        os.kill(os.getpid(), signal.SIGTERM)
        return process

    monkeypatch.setattr(subprocess, "Popen", start_and_signal)
    waiting = [sys.executable, "-c", "import time; time.sleep(600)"]
    found = end_of(waiting, tmp_path / "verdict.json", tmp_path / "exception.json")
    assert (found.code, found.was_asked) == (128 + signal.SIGTERM, True)


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
