"""``spark-events run``: run a program, print its verdict, and rerun it only where a rerun helps."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from spark_events.cli.arguments import UsageError, parsed
from spark_events.cli.output import note
from spark_events.config import positive_duration
from spark_events.config.kinds import integer
from spark_events.dispatch.plans import VERDICT_VARIABLE
from spark_events.event.text import on_one_line

#: Signals that end a program in order; they are passed on to it.
_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
#: Time after the program's exit in which its sidecar may still write the verdict, in seconds.
_VERDICT_SECONDS = 10.0
_POLL_SECONDS = 0.05
_BACKOFF = "30s"


class RetryRule(NamedTuple):
    """How often, and after which first pause in seconds, a program is rerun; each further pause is twice as long."""

    most: int = 0
    backoff: float = 30.0


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "run",
        help="run a program with Spark, print why it failed, and rerun it if that helps",
        description="Runs a program, such as spark-submit, keeps its exit code, and prints its verdict to standard"
        " error. Pass the program after --.",
    )
    parser.add_argument(
        "--retry",
        type=_retry,
        default=RetryRule(),
        metavar="RULE",
        help="transient=N[,backoff=TIME]: rerun at most N times, and only a failure for which a rerun helps"
        " (default: never)",
    )
    parser.add_argument("--verdict", type=Path, metavar="FILE", help="keep the verdict, a JSON document, in this file")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="the program and its arguments")
    parser.set_defaults(run=_run)


def _retry(text: str) -> RetryRule:
    parts = dict(part.partition("=")[::2] for part in text.split(","))
    backoff = parts.pop("backoff", _BACKOFF)
    most = parts.pop("transient", None)
    if most is None or parts:
        raise argparse.ArgumentTypeError(f"given {text!r}, allowed: transient=N or transient=N,backoff=TIME")
    return RetryRule(parsed(integer(1, 1_000))(most), parsed(positive_duration)(backoff))


def _run(chosen: argparse.Namespace) -> int:
    command = chosen.command[1:] if chosen.command[:1] == ["--"] else chosen.command
    if not command:
        raise UsageError("run: no program is given; write it after --, as in `spark-events run -- spark-submit job.py`")
    return run(command, chosen.retry, chosen.verdict)


def run(
    command: list[str],
    rule: RetryRule,
    keep: Path | None,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Run a program, and rerun it as the rule says; return its last exit code, 128 + N for signal N.

    Args:
        command: the program and its arguments.
        rule: which failures are rerun.
        keep: file for the last verdict; None: none.
        sleep: waits for a number of seconds.
    """
    for attempt in range(rule.most + 1):
        with tempfile.TemporaryDirectory(prefix="spark-events-run-") as folder:
            path = Path(folder, "verdict.json")
            code, signalled = _once(command, path)
            verdict = _await_verdict(path, code)
            if keep is not None:
                keep.write_text(json.dumps(verdict, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        for line in _shown(verdict, code):
            note(line)
        if code == 0 or signalled or attempt == rule.most or verdict.get("retry_useful") is not True:
            if code and rule.most and not signalled and attempt < rule.most:
                reason = "a rerun does not help" if "retry_useful" in verdict else "unknown whether a rerun helps"
                note(f"not rerun: {reason}")
            return code
        pause = rule.backoff * 2**attempt
        note(f"a rerun may help: attempt {attempt + 2} of {rule.most + 1} in {pause:g} s")
        sleep(pause)
    raise AssertionError("the loop returns")


def _once(command: list[str], verdict: Path) -> tuple[int, bool]:
    """Run the program; return its exit code, and whether this command was asked to end it."""
    asked = False
    try:
        process = subprocess.Popen(command, env={**os.environ, VERDICT_VARIABLE: str(verdict)})
    except OSError as error:
        note(f"cannot run {on_one_line(command[0])}: {error.strerror}")
        return (127 if isinstance(error, FileNotFoundError) else 126), False

    def pass_on(number: int, _: object) -> None:
        nonlocal asked
        asked = True
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in _PASSED_ON}
    try:
        code = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return (code if code >= 0 else 128 - code), asked


def _await_verdict(path: Path, code: int) -> dict[str, Any]:
    """Return the verdict; of a program whose sidecar has written none, only what its exit code says."""
    until = time.monotonic() + (_VERDICT_SECONDS if code else _POLL_SECONDS)
    while not path.exists() and time.monotonic() < until:
        time.sleep(_POLL_SECONDS)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = {"version": 1, "outcome": "FINISHED" if code == 0 else "LOST" if code > 128 else "FAILED"}
        found["body"] = _words(code)
    return {**found, "exit_code": code}


def _words(code: int) -> str:
    if code > 128:
        with contextlib.suppress(ValueError):
            return f"the program was killed by {signal.Signals(code - 128).name}, and its sidecar wrote no verdict"
    return f"the program exited with {code}, and no sidecar wrote a verdict"


def _shown(verdict: Mapping[str, Any], code: int) -> list[str]:
    lines = [f"{verdict['outcome']} (exit code {code}): {on_one_line(str(verdict.get('body', '')))}"]
    helps = {"True": "may help", "False": "does not help until the cause is corrected"}
    if "class" in verdict:
        said = helps.get(str(verdict.get("retry_useful")), "unknown whether it helps")
        lines.append(f"  class: {verdict['class']}; a rerun: {said}")
    lines += [f"  {name}: {on_one_line(str(verdict[key]))}" for name, key in _LINES if key in verdict]
    return lines


_LINES = (("cause", "cause"), ("code", "location"), ("incident", "incident_id"))
