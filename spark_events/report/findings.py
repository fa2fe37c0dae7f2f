"""Findings: sentences about problems, and notes on the data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from spark_events.report.numbers import Numbers
from spark_events.report.report_model import EventReport, Finding, ProblemCard, SubjectReport
from spark_events.report.runs import RunKey, SubjectRun, latest, overlapping
from spark_events.report.table import NO_APPLICATION
from spark_events.report.wording import counted, named, shortened, span, when

_ORDER = {"error": 0, "warning": 1, "note": 2}
#: Minimum number of restarts in the period that counts as a crash loop of a query or application.
_MANY_RESTARTS = 3
_MOST_NAMES = 5


def names_of(subjects: Sequence[SubjectReport]) -> dict[str, str]:
    """Return the name of each application or query, by key; queries of one name have that of their application too."""
    counts = Counter((one.kind, one.name) for one in subjects)
    return {
        one.key: one.name if counts[one.kind, one.name] == 1 else f"{one.application}/{one.name}" for one in subjects
    }


def title(subject: SubjectReport, name: str) -> str:
    """Return the name of an application or query, as :func:`names_of` returns it, for sentences."""
    return f"{subject.kind.capitalize()} '{named(name)}'"


def findings(
    subjects: Sequence[SubjectReport],
    numbers: Numbers,
    runs: Mapping[str, list[SubjectRun]],
    problems: Sequence[ProblemCard],
    sla_ms: int | None,
) -> tuple[Finding, ...]:
    """Return the problems: current problems first, then past problems, each sorted by severity."""
    found = [Finding(one.level, True, sentence(one), one.subject) for one in problems]
    names = names_of(subjects)
    for subject in subjects:
        found += _of_subject(subject, names[subject.key], sla_ms)
    found += _of_stages(numbers)
    found += _of_reporters(numbers, runs, {one.application for one in problems if one.kind == "breaker"})
    for lost in numbers.lost:
        what = counted(lost.count, "record or event", "records or events")
        text = f"{what} of '{lost.application}' lost ({lost.where}: {lost.reason}); its numbers may be too low."
        found.append(Finding("warning", False, text))
    return tuple(sorted(found, key=lambda one: (not one.now, _ORDER[one.level])))


def sentence(problem: ProblemCard) -> str:
    """Return a card as one sentence."""
    cause = f": {shortened(problem.cause)}" if problem.cause else ""
    place = f" (at {shortened(problem.location)})" if problem.location else ""
    return f"{problem.title}{cause}{place}."


def ahead(report: EventReport) -> str:
    """Say that events are dated in the future."""
    are = f"{counted(report.ahead_events, 'event')} {'is' if report.ahead_events == 1 else 'are'}"
    return f"{are} dated in the future, by up to {span(report.ahead_ms)}: a clock is wrong; they end no silence"


def _of_reporters(
    numbers: Numbers, runs: Mapping[str, list[SubjectRun]], with_card: Collection[str]
) -> Iterator[Finding]:
    """Yield the problems of reporters in active runs and, if no run is active, in the latest run."""
    ends: dict[RunKey, int | None] = {}
    for key, some in runs.items():
        last = latest(some)
        if key.startswith("a:"):
            ends |= {run.key: run.end for run in some if run.end is None or run is last}
    seen = set()
    for trouble in numbers.reporters:
        reporter = f"Reporter '{trouble.reporter}' of '{trouble.application}'"
        if reporter in seen or (trouble.run not in ends and trouble.application != NO_APPLICATION):
            continue
        seen.add(reporter)
        if ends.get(trouble.run) is None and trouble.status == "open" and trouble.application in with_card:
            continue
        if ends.get(trouble.run) is None:
            text = f"{reporter} has been {trouble.status} since {when(trouble.since)}"
        else:
            text = f"{reporter} was {trouble.status} from {when(trouble.since)} to the end of its run"
        yield Finding("warning", ends.get(trouble.run) is None, f"{text}: {shortened(trouble.reason)}.")


def _of_stages(numbers: Numbers) -> Iterator[Finding]:
    least = "at least " if numbers.slow_stage_count > len(numbers.slow_stages) else ""
    for application in dict.fromkeys(stage.application for stage in numbers.slow_stages):
        some = [stage for stage in numbers.slow_stages if stage.application == application]
        worst = some[0]
        lost = f" ({span(worst.lost_ms)} lost)" if worst.lost_ms else ""
        text = (
            f"Application '{shortened(application)}' had {least}{counted(len(some), 'slow stage')}; the worst is stage"
        )
        text += f" {worst.stage} [{shortened(worst.name)}]: {', '.join(kind for kind, _ in worst.problems)}{lost}."
        yield Finding("warning", False, text, f"a:{application}")


def _of_subject(subject: SubjectReport, name: str, sla_ms: int | None) -> Iterator[Finding]:
    """Yield the problems of an application or query; each text begins with its name."""
    name = title(subject, name)

    def finding(level: str, text: str, *, now: bool) -> Finding:
        return Finding(level, now, f"{name}{text}", subject.key)

    for idle in subject.idle:
        if idle.ongoing_since is not None and idle.held_back_by:
            text = f": {idle.held_back_by} has held back the watermark since {when(idle.ongoing_since)}."
            yield finding("warning", text, now=True)
        elif idle.ongoing_since is not None and idle.subject == "source":
            yield finding("note", f": {idle.source} has been idle since {when(idle.ongoing_since)}.", now=True)
    if subject.restarts >= _MANY_RESTARTS and subject.failed_runs >= _MANY_RESTARTS and subject.is_long_running:
        times = counted(subject.restarts, "time")
        yield finding("warning", f" restarted {times}; {subject.failed_runs} runs failed.", now=False)
    commits = subject.commits
    if commits is not None and commits.over_sla:
        limit = "its limit" if sla_ms is None else span(sla_ms)
        text = f": {commits.over_sla:,} of {counted(commits.events, 'commit')} took longer than {limit};"
        yield finding("warning", f"{text} the longest took {span(commits.max_ms)}.", now=False)
    for one in subject.enrichment:
        if one.failed_batches or one.unanswered_rows:
            text = f": {counted(one.unanswered_rows, 'row')} received no answer from {one.function}"
            text += f", {counted(one.failed_batches, 'batch', 'batches')} failed." if one.failed_batches else "."
            yield finding("warning", text, now=False)
    if subject.executors_lost:
        kinds = ", ".join(f"{count:,} {loss}" for loss, count in subject.executors_lost)
        total = sum(count for _, count in subject.executors_lost)
        yield finding("warning", f" lost {counted(total, 'executor')}: {kinds}.", now=False)


def notes_on(runs: Mapping[str, list[SubjectRun]], subjects: Sequence[SubjectReport], ahead: int) -> list[str]:
    """Return notes on gaps, duplicates and clocks in the data; ``ahead``: how far the newest event is in the future."""
    kinds: dict[str, list[tuple[str, int]]] = {}
    names = names_of(subjects)
    for subject in subjects:
        some = runs[subject.key]
        counts = {
            "started while an earlier run was still running": overlapping(some) if subject.kind == "application" else 0,
            "without a start event: the first event counts as the start": sum(not run.start_known for run in some),
            "without an end event: the last event counts as the end": sum(run.status == "UNKNOWN" for run in some),
            "ended before the start: the clocks differ": sum(run.ends_before_start for run in some),
            "still running, as far as the events show": sum(run.end is None for run in some),
        }
        for kind, count in counts.items():
            if count:
                kinds.setdefault(kind, []).append((named(names[subject.key]), count))
    notes = []
    for kind, found in kinds.items():
        shown = ", ".join(f"'{name}'" for name, _ in found[:_MOST_NAMES])
        more = f" and {len(found) - _MOST_NAMES} more" if len(found) > _MOST_NAMES else ""
        notes.append(f"{counted(sum(count for _, count in found), 'run')} {kind} ({shown}{more}).")
    if ahead:
        notes.append(f"The newest event is {span(ahead)} in the future: the clocks of the machines differ.")
    return notes
