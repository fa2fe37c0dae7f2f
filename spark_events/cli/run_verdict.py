"""Verdict that ``spark-events run`` prints: that of the sidecar, completed by what the command itself has seen."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from spark_events.cli.run_program import Ending
from spark_events.event import EventBuilder
from spark_events.event.text import on_one_line
from spark_events.failures.classes import UNKNOWN
from spark_events.failures.exit_codes import killed_by
from spark_events.records.types import Failure
from spark_events.reporters.verdict.document import of_failure, without_failure
from spark_events.sidecar.python_exceptions import UNCAUGHT
from spark_events.translate.enrichers import TypeEnricher
from spark_events.translate.failures import Diagnostics

__all__ = ["lines_of", "verdict_of"]

#: Outcomes of the sidecar that an exit code other than 0 contradicts: the program failed after its driver had stopped.
_NO_FAILURE = ("FINISHED", "ENDED")
#: Message of py4j if the JVM does not answer a call; that of an exception in the JVM is longer.
_UNANSWERED = re.compile(r"An error occurred while calling \S+")
_NETWORK = ("ConnectionRefusedError", "ConnectionResetError", "BrokenPipeError")
_FRAME = re.compile(r'^ +File "([^"]+)", line \d+', re.MULTILINE)


def verdict_of(ending: Ending, verdict: Path, exception: Path) -> dict[str, Any]:
    """Return the verdict on a program that has ended.

    Args:
        ending: how the program ended.
        verdict: file that its sidecar may have written.
        exception: file with the exception that its Python may have written.
    """
    found = _read(verdict) or {"version": 1, **_of_code(ending)}
    is_corrected = ending.code != 0 and found["outcome"] in _NO_FAILURE
    if is_corrected:
        found["outcome"] = "FAILED"
        if "card" not in found:
            how = killed_by(ending.code) or f"exit code {ending.code}"
            found["body"] = f"{found.get('application') or 'the program'}: {how}"
    elif ending.code == 0 and found["outcome"] == "ENDED":
        found = without_failure(found)
        found |= {"outcome": "FINISHED", "body": f"{found.get('application') or 'the program'}: exit code 0"}
    found["exit_code"] = ending.code
    is_unexplained = is_corrected or found.get("class", UNKNOWN) == UNKNOWN
    if ending.code == UNCAUGHT and found["outcome"] == "FAILED" and is_unexplained:
        with contextlib.suppress(msgspec.MsgspecError):
            found |= _of_exception(_read(exception), found)
    return {name: value for name, value in found.items() if value is not None}


def _read(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file; None if there is none."""
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(path.read_text(encoding="utf-8"))
        return found if isinstance(found, dict) else None
    return None


def _of_code(ending: Ending) -> dict[str, Any]:
    """Return outcome and sentence of a program that had no sidecar, or whose sidecar died with it."""
    code = ending.code
    if not ending.could_start:
        return {"outcome": "FAILED", "body": "the program could not be started"}
    if killed := killed_by(code):
        outcome = "CANCELLED" if ending.was_asked else "LOST"
        return {"outcome": outcome, "body": f"the program was {killed}; its sidecar wrote no verdict"}
    outcome = "FAILED" if code else "FINISHED"
    return {"outcome": outcome, "body": f"the program exited with {code}, and no sidecar wrote a verdict"}


def _of_exception(failure: dict[str, Any] | None, so_far: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the exception of the program's Python says; empty if there is none."""
    if failure is None:
        return {}
    error = msgspec.convert(failure, Failure)
    name = so_far.get("application") or "the program"
    if _has_lost_its_jvm(error):
        return {"outcome": "LOST", "body": f"{name}: the driver's JVM died, and its sidecar wrote no verdict"}
    diagnosis = Diagnostics([TypeEnricher()]).of(error)
    body = f"{name}: failed with exit code {UNCAUGHT}: {diagnosis.summary}"
    known = {
        "spark.app.name": so_far.get("application"),
        "incident.id": so_far.get("incident_id"),
        "incident.key": so_far.get("incident_key"),
    }
    attributes = {**diagnosis.attributes, **{key: value for key, value in known.items() if value}}
    event = EventBuilder("spark.application", "JobFailureEvent").set_body(body).set_attributes(attributes).build()
    return {"body": body, **of_failure(event)}


def _has_lost_its_jvm(error: Failure) -> bool:
    """Return whether the exception means that the driver's JVM is gone, and nothing about why it went."""
    first = error.chain[0]
    if first.type == "py4j.protocol.Py4JError":
        return _UNANSWERED.fullmatch(first.message or "") is not None
    frames = _FRAME.findall(error.trace)
    is_py4j_s = bool(frames) and "py4j" in Path(frames[-1]).parts
    return first.type == "py4j.protocol.Py4JNetworkError" or (first.type in _NETWORK and is_py4j_s)


def lines_of(verdict: Mapping[str, Any]) -> list[str]:
    """Return the verdict for people: the outcome, and the card of a failure."""
    first = f"{verdict['outcome']} (exit code {verdict['exit_code']})"
    title, *facts = str(verdict.get("card") or verdict.get("body", "")).splitlines() or [""]
    return [f"{first}: {on_one_line(title)}", *(f"  {on_one_line(fact)}" for fact in facts)]
