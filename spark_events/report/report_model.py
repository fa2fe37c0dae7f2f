"""Model of a computed report, which the terminal, JSON and the page show.

Times are in milliseconds since the epoch, durations in milliseconds. None means unknown.
"""

from __future__ import annotations

import dataclasses
from typing import TypeAlias

import msgspec


@dataclasses.dataclass(frozen=True, slots=True)
class SourceSummary:
    """Summary of one source: a file, log or database."""

    source: str
    kind: str
    events: int


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """A problem, described by one sentence.

    Attributes:
        level: ``error``, ``warning`` or ``note``.
        now: whether the problem still exists at the end of the period.
        text: a sentence that describes the problem.
        subject: key of the application or query that has the problem; None if the problem concerns neither.
    """

    level: str
    now: bool
    text: str
    subject: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Link:
    """Link of a card, such as the runbook."""

    name: str
    url: str


@dataclasses.dataclass(frozen=True, slots=True)
class KafkaRecord:
    """Place of one record of Kafka."""

    topic: str
    partition: int
    offset: int


@dataclasses.dataclass(frozen=True, slots=True)
class ProblemCard:
    """What is wrong now, as a card.

    It has many fields, because it is one card of the report's JSON document.

    Attributes:
        id: identifies the card in the page's address, the same in every report.
        incident_keys: keys of all incidents that the card is about, also of those that it hides.
        kind: ``failure``, ``ended``, ``silent``, ``crash-loop``, ``overdue`` or ``breaker``.
        level: ``error`` or ``warning``.
        entity: ``application`` or ``query``.
        subject: key of the application or query in the report; ``subjects``: of all, if several share the card.
        title: a sentence that says what is wrong, since when and for how long.
        incidents: number of problems with the same cause that share the card.
        times: number of incidents with this key in the period, this one included; without a key, of failed runs, or of
            silences.
        alarms: number of alarms of this incident.
        failed_runs: number of runs that failed in the last hour, if there is a crash loop; otherwise 0.
        running_since: start of the run that is active, although the failure is not over; None without such a run.
        silent_since: when it fell silent, whatever the kind of the problem; None if it is not silent.
        retry_useful: whether a rerun may help; None if unknown.
        recommendation: a setting with its old and its proposed value.
        committed_batch: last committed batch of the query.
        failed_batch: the batch that failed.
        data_file: the file that could not be read.
        data_record: the record of Kafka that the failure names.
        data_partition: the partition of the failed task.
        command: command that shows more.
        text: the card as text.
    """

    id: str
    incident_key: str | None
    incident_keys: tuple[str, ...]
    kind: str
    level: str
    entity: str
    subject: str
    subjects: tuple[str, ...]
    name: str
    application: str
    app_id: str | None
    title: str
    since: int
    last: int
    duration_ms: int
    times: int
    alarms: int
    failed_runs: int
    silent_since: int | None
    cause: str | None
    error_type: str | None
    failure_class: str | None
    retry_useful: bool | None
    recommendation: str | None
    location: str | None
    source_line: str | None
    committed_batch: int | None
    committed_at: int | None
    committed_offsets: str | None
    failed_batch: int | None
    data_file: str | None
    data_record: KafkaRecord | None
    data_partition: int | None
    application_ended: bool
    environment: str | None
    tags: dict[str, str]
    host: str | None
    links: tuple[Link, ...]
    command: str
    text: str
    incidents: int = 1
    running_since: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class StaleSource:
    """Source whose newest event is older than 15 minutes.

    Attributes:
        running: number of its applications that have not ended, as far as the events show; 0 if the period ends before
            the newest event.
    """

    source: str
    newest: int
    age_ms: int
    running: int


@dataclasses.dataclass(frozen=True, slots=True)
class RunSummary:
    """One run of an application or query, clipped to the period.

    Attributes:
        id: the application's id, with its attempt, or the run id of a query.
        start: start time, or time of the first event if ``start_known`` is False.
        end: end time; None while the run is active.
        status: RUNNING, FINISHED, FAILED, CANCELLED, ENDED, LOST, or UNKNOWN if no event reports its termination.
        last: time of the last event.
        cause: cause of the run's failure.
    """

    id: str
    start: int
    end: int | None
    status: str
    start_known: bool
    last: int
    cause: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class Downtime:
    """Time after a failure in which the application or query did not run.

    Attributes:
        ongoing: whether the downtime continues at the end of the period.
    """

    start: int
    end: int
    ongoing: bool
    cause: str


@dataclasses.dataclass(frozen=True, slots=True)
class SlowCommit:
    """One commit over the SLA."""

    at: int
    batch_id: int | None
    duration_ms: float | None
    rows: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class CommitNumbers:
    """Committed micro-batches of a query.

    Attributes:
        events: number of events; an event for several batches counts once, with the mean duration of these batches.
        over_sla: number of events over the SLA; without an SLA, number of events with severity WARN.
        slow: the slowest of the events in ``over_sla``, longest first.
    """

    events: int
    batches: int
    rows: int
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    max_ms: float | None
    first: int
    last: int
    over_sla: int
    rows_per_second: float | None = None
    slow: tuple[SlowCommit, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Watermark:
    """Watermark of a query; its lag is the time between the watermark and the newest row."""

    last: int | None
    lag_ms: int | None
    max_lag_ms: int | None
    rows_dropped_late: int


@dataclasses.dataclass(frozen=True, slots=True)
class IdleTime:
    """Idle time of a query's watermark, of one of its sources, or of a partition."""

    subject: str
    source: str
    times: int
    total_ms: int
    ongoing_since: int | None
    held_back_by: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class Overdue:
    """Work that took longer than its deadline.

    Attributes:
        start: time at which the deadline passed.
        end: time at which the work was on time again, or was completed; None while it is overdue.
    """

    what: str
    rule: str
    start: int
    end: int | None
    limit_ms: int | None
    elapsed_ms: int | None
    place: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class EnrichmentNumbers:
    """Batches of one function of ``enrich_batch``.

    Attributes:
        p99_ms: highest 99th percentile of the attempts' durations in a batch, over all batches.
    """

    function: str
    batches: int
    failed_batches: int
    calls: int
    attempts: int
    retries: int
    timeouts: int
    unanswered_rows: int
    p99_ms: float | None


@dataclasses.dataclass(frozen=True, slots=True)
class SubjectReport:
    """Numbers of one application or query in the period.

    It has many fields, because it is one row of the report's JSON document.

    Attributes:
        key: identifies the application or query in the report.
        kind: ``application`` or ``query``.
        outcome: status of the last run; SILENT if it has not ended, but is silent, or its source is stale.
        doubtful_runs: number of runs that ended after a failure, with an unknown exit code.
        failures: index in the report's ``failures`` and number of failures, for each cause.
        incidents: number of incidents: the failures of a stage, its job, its query and its application are one.
        downtime_count: number of downtimes; like ``run_count``, ``overdue_count`` and ``idle_count``, exact even if the
            page omits entries of the list.
        executors_lost: cause and number of lost executors.
        dropped: number of lost records and events of the application.
    """

    key: str
    kind: str
    id: str
    name: str
    application: str
    outcome: str
    is_long_running: bool
    uptime_ms: int
    downtime_ms: int
    uptime_percent: float | None
    restarts: int
    runs: tuple[RunSummary, ...]
    run_count: int
    failed_runs: int
    doubtful_runs: int
    downtimes: tuple[Downtime, ...]
    commits: CommitNumbers | None
    watermark: Watermark | None
    idle: tuple[IdleTime, ...]
    overdue: tuple[Overdue, ...]
    enrichment: tuple[EnrichmentNumbers, ...]
    failures: tuple[tuple[int, int], ...]
    incidents: int
    executors_lost: tuple[tuple[str, int], ...]
    dropped: int
    downtime_count: int
    overdue_count: int
    idle_count: int
    core_hours: float | None = None
    core_hours_used: float | None = None
    core_hours_idle: float | None = None
    cost: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class SlowStage:
    """A stage attempt with at least one problem.

    Attributes:
        lost_ms: estimated time that the stage lost because of its most expensive problem.
        problems: kind and explanation of each problem, in the order of the event's attributes.
        text: the body of the event that reports the stage.
    """

    application: str
    app_id: str | None
    stage: int
    attempt: int
    name: str
    at: int
    duration_ms: int | None
    lost_ms: int
    problems: tuple[tuple[str, str], ...]
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class FailureGroup:
    """Failures with one root cause.

    It has many fields, because it is one entry of the JSON output.

    Attributes:
        count: number of JobFailureEvents and lost applications; a stage, its job and its query report one failure each.
        entities: number of failures by entity.
        retried: number of failures after which Spark retried.
        stack: last stack trace among the failures.
        failure_class: last class among the failures, such as ``DATA_ERROR``; UNKNOWN if all are unknown.
        retry_useful: whether a retry of the same work may succeed; None if unknown.
        incidents: number of incidents: the failures of a stage, its job, its query and its application are one.
    """

    key: str
    error_type: str
    cause: str
    label: str | None
    location: str | None
    count: int
    retried: int
    first: int
    last: int
    entities: dict[str, int]
    applications: tuple[str, ...]
    queries: tuple[str, ...]
    stack: str | None
    failure_class: str | None = None
    retry_useful: bool | None = None
    incidents: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Lost:
    """Lost records or events; because of such losses, some numbers of the report may be too low."""

    application: str
    where: str
    reason: str
    count: int


#: Part of a lane: start, end, state and explanation. The states are ``running``, ``finished``, ``cancelled``,
#: ``unknown``, ``failed``, ``down``, ``idle``, ``overdue`` and ``no data``.
Segment: TypeAlias = tuple[int, int, str, str]
#: One point of a query's charts: start of the bucket, commits, min, median and max duration, rows/s, highest lag.
Point: TypeAlias = tuple[int, int, float | None, float | None, float | None, float | None, int | None]


#: One bucket of an executors chart: start of the bucket, lowest, highest and last number of executors.
Step: TypeAlias = tuple[int, int, int, int]


@dataclasses.dataclass(frozen=True, slots=True)
class Marker:
    """Failures with the same cause, in one lane and one bucket of time."""

    subject: str
    group: int
    first: int
    last: int
    count: int


@dataclasses.dataclass(frozen=True, slots=True)
class Drawing:
    """Aggregated data of the page, about ten thousand points at most.

    Attributes:
        lanes: segments by subject: start, end, state, explanation.
        series: points of commits by query.
        executors: numbers of executors by application.
        bucket_ms: width of a bucket of ``series``.
        markers: failures; the sum of their counts is the number of failures.
        until: end of the time axis: that of the period, or somewhat later, so that the time of which nothing is known
            is seen.
        marker_ms: if there are more than a thousand markers, width of the buckets whose failures share one; else 0.
    """

    lanes: dict[str, tuple[Segment, ...]]
    series: dict[str, tuple[Point, ...]]
    executors: dict[str, tuple[Step, ...]]
    bucket_ms: int
    markers: tuple[Marker, ...]
    until: int
    marker_ms: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class EventReport:
    """A report.

    It has many fields, because it is the JSON document of a whole report.

    Attributes:
        until_is: ``given``, ``now`` or ``newest event``.
        at: time at which a problem is current: now, or the given end of the period.
        newest: time of the newest event of all sources that is not dated in the future.
        newest_age_ms: time between ``newest`` and now, whatever the period is.
        ahead_events: number of events that were dated in the future; they count as events of now.
        ahead_ms: how far the newest of them is ahead.
        problems: what is wrong now, worst first.
        is_wrong: whether anything is wrong now: a problem, a current finding, or a stale source whose applications have
            not ended.
        status: one sentence; it begins with ``OK`` only if nothing is wrong.
        stale: sources whose newest event is older than 15 minutes.
        findings: the problems, in the order of severity.
        slow_stages: stage attempts with a problem, in the order of the lost time.
        notes: notes on the data: gaps, clocks, damage.
        drawing: data of the page's charts; None without a page.
    """

    generated: int
    since: int
    until: int
    until_is: str
    newest: int
    sla_ms: int | None
    events: int
    duplicates: int
    damaged_lines: int
    sources: tuple[SourceSummary, ...]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    applications: tuple[SubjectReport, ...]
    queries: tuple[SubjectReport, ...]
    failures: tuple[FailureGroup, ...]
    failure_count: int
    lost: tuple[Lost, ...]
    at: int = 0
    newest_age_ms: int = 0
    ahead_events: int = 0
    ahead_ms: int = 0
    problems: tuple[ProblemCard, ...] = ()
    stale: tuple[StaleSource, ...] = ()
    is_wrong: bool = False
    status: str = ""
    slow_stages: tuple[SlowStage, ...] = ()
    slow_stage_count: int = 0
    drawing: Drawing | None = None

    @property
    def subjects(self) -> tuple[SubjectReport, ...]:
        """All applications, followed by all queries."""
        return (*self.applications, *self.queries)

    @property
    def violates_sla(self) -> bool:
        """Whether a commit took longer than the SLA."""
        return self.sla_ms is not None and any(one.commits and one.commits.over_sla for one in self.queries)

    def as_json(self) -> bytes:
        """Encode the report, without the page's drawing."""
        return msgspec.json.encode(dataclasses.replace(self, drawing=None))
