"""``spark-events run``: run a program, print its verdict, and rerun it only where a rerun helps."""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from spark_events.cli.arguments import UsageError, parsed
from spark_events.cli.output import note
from spark_events.cli.run_program import end_of
from spark_events.cli.run_verdict import lines_of, verdict_of
from spark_events.config import positive_duration
from spark_events.config.value_kinds import integer
from spark_events.reporters.verdict.document import write

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
    if keep is not None:
        # If this command is killed, the verdict of an earlier run must not remain.
        with contextlib.suppress(OSError):
            keep.unlink()
    for attempt in range(rule.most + 1):
        with tempfile.TemporaryDirectory(prefix="spark-events-run-") as folder:
            written, exception = Path(folder, "verdict.json"), Path(folder, "exception.json")
            ending = end_of(command, written, exception)
            verdict = verdict_of(ending, written, exception)
        if keep is not None:
            try:
                write(verdict, keep)
            except OSError as error:
                note(f"cannot write the verdict to {keep}: {error.strerror}; the exit code is kept")
        for line in lines_of(verdict):
            note(line)
        if ending.code == 0 or ending.was_asked or attempt == rule.most:
            return ending.code
        if verdict.get("retry_useful") is not True:
            reason = "a rerun does not help" if "retry_useful" in verdict else "unknown whether a rerun helps"
            note(f"not rerun: {reason}")
            return ending.code
        pause = rule.backoff * 2**attempt
        note(f"a rerun may help: attempt {attempt + 2} of {rule.most + 1} in {pause:g} s")
        sleep(pause)
    raise AssertionError("the loop returns")
