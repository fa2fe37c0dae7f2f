"""Events about the dispatcher: changes of its reporters' status, and the final report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from spark_events.event import AttributeValue, Severity
from spark_events.translate.draft import Draft, counted, present

__all__ = ["final_report", "queue_status", "reporter_status"]

_SCOPE = "spark_events.dispatch"
_DROPPED = "dropped."


def reporter_status(name: str, old: str | None, new: str, why: str, at: int) -> Draft:
    """Describe a state change of a reporter's circuit breaker, or a disabled reporter.

    Args:
        name: the reporter's name.
        old: the previous state; None for a reporter that was never enabled.
        new: the new state.
        why: the reason, in readable form.
        at: milliseconds since the epoch.
    """
    key: tuple[str | int, ...] = ("reporter", name, new, at)
    body = f"The circuit breaker of reporter '{name}' went from {old} to {new}: {why}"
    severity = Severity.WARN if new == "open" else Severity.INFO
    if old is None:
        # The key contains no time: if several sidecars of an application report the same mistake, their events have the
        # same id.
        key = ("reporter", name, new)
        body = f"Reporter '{name}' is {new} and gets no events: {why}"
        severity = Severity.ERROR
    return Draft(
        name="ReporterStatusChangeEvent",
        class_scope=_SCOPE,
        key=key,
        body=body,
        severity=severity,
        observed_ts_millis=at,
        attributes=present(
            {
                "spark.events.reporter.name": name,
                "spark.status.old": old,
                "spark.status.new": new,
                "spark.status.reason": why,
            }
        ),
    )


def queue_status(name: str, is_nearly_full: bool, usage: float, at: int) -> Draft:
    """Describe a reporter's queue that has become nearly full, or that is no longer so.

    Args:
        name: the reporter's name.
        is_nearly_full: whether the queue has become nearly full.
        usage: the fraction of the queue's capacity that is in use.
        at: milliseconds since the epoch.
    """
    old, new = ("normal", "nearly-full") if is_nearly_full else ("nearly-full", "normal")
    percent = min(100, int(usage * 100))
    what = "; a full queue drops the least severe events first" if is_nearly_full else " again"
    return Draft(
        name="ReporterQueueEvent",
        class_scope=_SCOPE,
        key=("queue", name, new, at),
        body=f"The queue of reporter '{name}' is {'' if is_nearly_full else 'only '}{percent} % full{what}",
        severity=Severity.WARN if is_nearly_full else Severity.INFO,
        observed_ts_millis=at,
        attributes={
            "spark.events.reporter.name": name,
            "spark.status.old": old,
            "spark.status.new": new,
            "spark.events.queue.usage": round(usage, 4),
        },
    )


def final_report(counters: Mapping[str, Mapping[str, int]], doubtful: Mapping[str, int], at: int) -> Draft:
    """Return the final report: for each reporter, accepted = delivered + dropped + spooled + held.

    Args:
        counters: by reporter: ``accepted``, ``delivered``, ``held``, ``spooled``, and ``dropped.<reason>``.
        doubtful: number of records without an event, by reason; ``dropped`` records never reached the sidecar.
        at: milliseconds since the epoch.
    """
    accounts: list[dict[str, Any]] = []
    sentences = []
    lost_by_all = held_by_all = 0
    for name, account in counters.items():
        dropped_by_reason = {key[len(_DROPPED) :]: count for key, count in account.items() if key.startswith(_DROPPED)}
        lost = sum(dropped_by_reason.values())
        lost_by_all += lost
        numbers = {key: count for key, count in account.items() if not key.startswith(_DROPPED)}
        accounts.append({"name": name, **numbers, "dropped": dropped_by_reason})
        held = account.get("held", 0)
        spooled = account.get("spooled", 0)
        held_by_all += held
        sentences.append(
            f"{name} {account['delivered']:,} of {account['accepted']:,} delivered"
            + (f", {lost:,} lost" if lost else "")
            + (f", {spooled:,} on disk, not delivered yet" if spooled else "")
            + (f", {held:,} not delivered yet" if held else "")
        )
    dropped = doubtful.get("dropped", 0)
    if dropped:
        sentences.append(f"{counted(dropped, 'record', ('was', 'were'))} lost before they reached a reporter")
    without_start = doubtful.get("without_start", 0)
    if without_start:
        sentences.append(f"{counted(without_start, 'job')} finished without an event: start not recorded")
    attributes: dict[str, AttributeValue] = {
        # Use one string instead of an attribute per reporter, because many backends index each attribute name.
        "spark.events.reporters": msgspec.json.encode(accounts).decode(),
        "spark.events.lost": lost_by_all + dropped,
    }
    # Held and spooled events may still be delivered after this report.
    attributes["spark.events.undelivered"] = held_by_all
    attributes.update({f"spark.events.records.{what}": count for what, count in doubtful.items()})
    return Draft(
        name="DispatcherReportEvent",
        class_scope=_SCOPE,
        key=("report", at),
        body=f"Events by reporter: {'; '.join(sentences)}",
        severity=Severity.WARN if lost_by_all or held_by_all or dropped else Severity.INFO,
        observed_ts_millis=at,
        attributes=attributes,
    )
