"""Cards: what is wrong now, with everything that is known about it.

The rows come from ``spark_events_now``. Queries of one application with the same problem and cause share a card.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shlex
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

from spark_events.event.text import on_one_line, visible
from spark_events.report.cards import card
from spark_events.report.numbers import QUERY
from spark_events.report.report_model import KafkaRecord, Link, ProblemCard, StaleSource
from spark_events.report.table import EventTable
from spark_events.report.wording import counted, named, span, typed, typed_key, when

_KINDS = ("failure", "ended", "silent", "crash-loop", "overdue", "breaker")
#: Failed runs in an hour that are a crash loop, as in ``spark_events_now``.
_LOOP = 3
_RUNBOOK = "incident.runbook_url"
_LEVELS = {"FATAL": 0, "ERROR": 1}
_PLURALS = {"query": "queries"}
#: What fails within an application or query: noun, with its article, and the attribute with its number.
_PARTS = {
    "job": ("job", "A job", "spark.job.id"),
    "sql": ("SQL execution", "An SQL execution", "spark.sql.execution.id"),
    "stage": ("stage", "A stage", "spark.stage.id"),
}
# An earlier silence is an interval that was longer than the one that makes the work silent now; of a query, also from
# the start of a run on, and until its end.
_ROWS = """
WITH known AS (SELECT id, any_value(attributes) AS attributes FROM detail GROUP BY id),
late AS (
  SELECT entity, subject, environment, arg_max(event_id, opened_ts_millis) AS event_id,
    max(opened_ts_millis) AS since
  FROM spark_events_incidents WHERE kind = 'overdue' AND is_open GROUP BY ALL
), started AS (
  SELECT app_id, arg_min(id, (ts, sequence)) AS id FROM event
  WHERE name = 'JobStatusChangeEvent' AND entity = 'application' GROUP BY app_id
), history AS (
  SELECT incident_key, count(*) AS opened FROM spark_events_incidents GROUP BY incident_key
), failed AS (
  SELECT entity, subject, environment, count(*) AS runs FROM spark_events_runs
  WHERE status IN ('FAILED', 'LOST', 'UNKNOWN') GROUP BY ALL
), quiet AS (
  SELECT entity, subject, environment, arg_max(limit_ms, since_ts_millis) AS limit_ms, max(since_ts_millis) AS since
  FROM spark_events_silent_runs GROUP BY ALL
), sign AS (
  SELECT quiet.*, run.app_id, run.query_run_id, unnest([run.started_ts_millis, run.ended_ts_millis]) AS ts
  FROM quiet JOIN spark_events_runs AS run USING (entity, subject, environment) WHERE entity = 'query'
  UNION ALL
  SELECT quiet.*, run.app_id, run.query_run_id, event.ts
  FROM quiet JOIN spark_events_runs AS run USING (entity, subject, environment)
  JOIN event ON event.app_id = run.app_id
    AND (entity = 'application' OR (event.run_id = run.query_run_id AND event.name = 'BatchCommitEvent'))
), interval_of_run AS (
  SELECT sign.*, ts - lag(ts) OVER (PARTITION BY entity, subject, environment, app_id, query_run_id ORDER BY ts) AS gap
  FROM sign WHERE ts BETWEEN {begin} AND since
), silences AS (
  SELECT entity, subject, environment, count(*) FILTER (gap > limit_ms) + 1 AS times
  FROM interval_of_run GROUP BY ALL
), inside AS (
  SELECT app_name, environment, list_sort(list(DISTINCT incident_key) FILTER (is_open OR kind = 'failure')) AS keys
  FROM spark_events_incidents GROUP BY ALL
), named AS (
  SELECT entity, subject, environment, list_sort(list(DISTINCT incident_key) FILTER (is_open)) AS open_keys,
    list_sort(list(DISTINCT incident_key) FILTER (is_open OR kind = 'failure')) AS keys
  FROM spark_events_incidents GROUP BY ALL
), ended AS (
  SELECT app_id, any_value(status) FILTER (ended_ts_millis IS NOT NULL) AS status,
    bool_or(is_long_running) AS is_long_running
  FROM spark_events_runs WHERE entity = 'application' GROUP BY app_id
)
SELECT now.*, CASE now.entity WHEN 'query' THEN 'q:' ELSE 'a:' END || now.subject AS key,
  CAST(alarm.attributes AS VARCHAR) AS attributes, about.app_id IS NOT DISTINCT FROM now.app_id AS is_of_run,
  CAST(overdue.attributes AS VARCHAR) AS late, late.since AS late_since,
  CAST(start.attributes AS VARCHAR) AS base,
  CASE WHEN now.kind = 'silent' THEN silences.times WHEN now.incident_key IS NULL THEN failed.runs
    ELSE history.opened END AS opened,
  -- Each failure of a crash loop may have recovered, and its queries have no card, but their alerts name the same work.
  coalesce(CASE WHEN now.kind NOT IN ('ended', 'silent', 'crash-loop') THEN named.open_keys
    WHEN now.entity = 'application' THEN inside.keys ELSE named.keys END, []) AS incident_keys,
  ended.status AS application_status, ended.is_long_running,
  coalesce(about.severity, 0) AS number, about.body
FROM spark_events_now AS now
LEFT JOIN known AS alarm ON alarm.id = now.event_id
LEFT JOIN event AS about ON about.id = now.event_id
LEFT JOIN late ON now.kind IN ('silent', 'crash-loop') AND late.entity = now.entity AND late.subject = now.subject
  AND late.environment = now.environment
LEFT JOIN known AS overdue ON overdue.id = late.event_id
LEFT JOIN started ON started.app_id = now.app_id
LEFT JOIN known AS start ON start.id = started.id
LEFT JOIN history ON history.incident_key = now.incident_key
LEFT JOIN silences ON silences.entity = now.entity AND silences.subject = now.subject
  AND silences.environment = now.environment
LEFT JOIN failed ON now.kind IN ('ended', 'crash-loop') AND failed.entity = now.entity
  AND failed.subject = now.subject AND failed.environment = now.environment
LEFT JOIN inside ON inside.app_name = now.app_name AND inside.environment = now.environment
LEFT JOIN named ON named.entity = now.entity AND named.subject = now.subject AND named.environment = now.environment
LEFT JOIN ended ON ended.app_id = now.app_id
"""
# A query of the same name in another environment is other work. The time of a commit that is dated in the future is
# unknown.
_COMMITTED = f"""
SELECT {QUERY} AS subject, 'a:' || app AS application, coalesce(environment, '') AS environment,
  arg_max(batch_id, (ts, sequence)),
  CASE WHEN arg_max(coalesce(is_ahead, false), (ts, sequence)) THEN NULL ELSE max(ts) END
FROM event
WHERE name IN ('BatchCommitEvent', 'CommitWrittenEvent') AND committed IS DISTINCT FROM 'false'
  AND coalesce(query_id, query_name) IS NOT NULL GROUP BY ALL
"""
# An application that had not ended at a time before the newest event may have ended since.
_STALE = """
SELECT source, newest_ts_millis, age_ms,
  coalesce((SELECT count(DISTINCT subject) FROM spark_events_runs AS run WHERE entity = 'application'
    AND ended_ts_millis IS NULL AND newest_ts_millis <= {at} AND app_id IN (SELECT coalesce(app_id, app) FROM event
      WHERE event.source_number = spark_events_sources.source)), 0) AS running
FROM spark_events_sources WHERE is_stale ORDER BY source
"""


def problems_of(table: EventTable, begin: int, at: int, place: str) -> tuple[ProblemCard, ...]:
    """Return the cards, worst first.

    Args:
        table: the events and the tables computed from them.
        begin: the beginning of the period.
        at: the time at which the problems are current.
        place: the source that commands name.
    """
    committed = _commits(table)
    groups: dict[tuple[str, ...], list[tuple[str, ProblemCard]]] = defaultdict(list)
    for row in table.rows(_ROWS.format(begin=begin)):
        part = _affected_by(row)
        one = _problem(row, part, committed, at, place)
        cause = (one.cause or "").partition("\n")[0]
        # Only problems of named parts in the same state can be one list.
        own = str(row["running_since_ts_millis"] is not None) if part.name else one.id
        groups[one.kind, part.what, one.application, one.app_id or "", cause, own].append((part.name, one))
    cards = [_joined(what, some) for (_, what, *_), some in groups.items()]
    return tuple(sorted(cards, key=lambda one: (one.level != "error", _KINDS.index(one.kind), -one.last, one.id)))


def _commits(table: EventTable) -> dict[tuple[str, str], tuple[int, int | None]]:
    """Return batch and time of the last commit of each query, and of each application that has only one query."""
    rows = table.run(_COMMITTED)
    queries = Counter((application, where) for _, application, where, _, _ in rows)
    found = {(subject, where): (batch, ts) for subject, _, where, batch, ts in rows}
    return found | {(app, where): (batch, ts) for _, app, where, batch, ts in rows if queries[app, where] == 1}


def stale_sources(table: EventTable, names: Sequence[str], at: int) -> tuple[StaleSource, ...]:
    """Return the sources whose newest event is older than 15 minutes; ``at``: the end of the period, at most now."""
    return tuple(
        StaleSource(names[source] if source < len(names) else "the source", newest, age, running)
        for source, newest, age, running in table.run(_STALE.format(at=at))
    )


class _Affected(NamedTuple):
    """What has the problem: a query, an application, or a part of one that failed, such as a job.

    Attributes:
        what: a noun in singular.
        name: its name within the application; empty for the application itself, and for parts without a name.
        title: how a sentence names it.
        is_whole: whether it is the application or query itself, which does not run after its failure.
    """

    what: str
    name: str
    title: str
    is_whole: bool = False


def _affected_by(row: dict[str, Any]) -> _Affected:
    reported: dict[str, Any] = json.loads(row["attributes"] or "{}")
    owner = f"of '{named(row['app_name'])}'"
    failed = _PARTS.get(str(reported.get("spark.entity"))) if row["kind"] == "failure" else None
    if row["entity"] == "query":
        if failed is None:
            return _Affected("query", named(row["name"]), f"Query '{named(row['name'])}' {owner}", True)
        owner = f"of query '{named(row['name'])}' {owner}"
    elif failed is None:
        return _Affected("application", "", f"Application '{named(row['name'])}'", True)
    what, one_of_many, attribute = failed
    _, is_watched, work = str(row["incident_key"] or "").rpartition("/job=")
    if is_watched:
        work = unquote(work.removesuffix("/failure"))
        # Without a group, the key has the description or the call site of the job.
        described = [reported.get("spark.job.description"), reported.get("spark.job.call_site")]
        what = "job" if work in described and work != reported.get("spark.job.group") else "job group"
        return _Affected(what, f"{named(work)}", f"{what.capitalize()} '{named(work)}' {owner}")
    number = reported.get(attribute)
    if number is None or row["times"] > 1:
        return _Affected(what, "", f"{one_of_many} {owner}")
    return _Affected(what, str(number), f"{what[0].upper()}{what[1:]} {number} {owner}")


def _problem(
    row: dict[str, Any], part: _Affected, commits: Mapping[tuple[str, str], tuple[int, int | None]], at: int, place: str
) -> ProblemCard:
    start: dict[str, Any] = json.loads(row["base"] or "{}")
    reported: dict[str, Any] = json.loads(row["attributes"] or "{}")
    late: dict[str, Any] = json.loads(row["late"] or "{}")
    about = start | reported
    # The failure of an earlier run says nothing about the place of this one.
    run = about if row["is_of_run"] else {key: reported[key] for key in reported if key == _RUNBOOK} | start
    environment = _text(about, "deployment.environment.name")
    committed = commits.get((row["key"], environment or ""), (None, None))
    kind = row["kind"]
    failed = row["attributes"] is not None and kind not in ("overdue", "breaker")
    cause = about.get("failure.root_cause") or about.get("exception.message") if failed else None
    if kind == "failure":
        cause = cause or row["cause"] or row["body"]
    elif kind == "breaker":
        cause = _text(about, "spark.status.reason")
    has_ended = row["application_status"] is not None
    is_severe = kind not in ("overdue", "breaker") or str(row["severity"]) in _LEVELS
    batch = about.get("spark.batch.id") if failed else None
    partition = about.get("failure.data.partition")
    problem = ProblemCard(
        id=_slug(row["incident_key"] or f"{row['subject']}/{kind}"),
        incident_key=row["incident_key"],
        incident_keys=tuple(row["incident_keys"]),
        kind=kind,
        level="error" if is_severe else "warning",
        entity=row["entity"],
        subject=row["key"],
        subjects=(row["key"],),
        name=row["name"],
        application=row["app_name"] or "?",
        app_id=row["app_id"],
        title=_title(part, row, about, at) + _hidden(row, late, at),
        since=row["since_ts_millis"],
        last=row["last_ts_millis"],
        duration_ms=max(0, at - row["since_ts_millis"]),
        times=row["opened"] or 1,
        alarms=row["times"] or 1,
        failed_runs=row["failed_runs"] or 0,
        silent_since=row["silent_since_ts_millis"],
        running_since=row["running_since_ts_millis"],
        cause=None if cause is None else visible(str(cause)),
        error_type=_text(about, "error.type") if failed else None,
        failure_class=_text(about, "failure.class") if failed else None,
        retry_useful=_flag(about.get("failure.retry_useful")) if failed else None,
        recommendation=_text(about, "failure.recommendation") if failed else None,
        location=(
            _text(about, "failure.location") or _text(about, "failure.preceding.location")
            if failed
            else _text(late or about, "spark.deadline.location") or _text(late or about, "spark.deadline.place")
        ),
        source_line=_text(about, "failure.source_line") if failed else None,
        committed_batch=committed[0],
        committed_at=committed[1],
        committed_offsets=_text(about, "spark.streaming.query.committed_offsets"),
        failed_batch=batch if isinstance(batch, int) and batch != committed[0] else None,
        data_file=_text(about, "failure.data.file") if failed else None,
        data_record=_record(about) if failed else None,
        data_partition=partition if failed and isinstance(partition, int) else None,
        application_ended=has_ended,
        environment=environment,
        tags={key.removeprefix("spark.tag."): str(value) for key, value in run.items() if key.startswith("spark.tag.")},
        host=_text(run, "host.name"),
        links=_links(run, has_ended),
        command=_command(place, row["app_name"] or "?", row["app_id"], row["incident_key"]),
        text="",
    )
    return dataclasses.replace(problem, text=card(problem))


def _record(about: dict[str, Any]) -> KafkaRecord | None:
    topic = _text(about, "failure.data.topic")
    partition, offset = about.get("failure.data.topic_partition"), about.get("failure.data.offset")
    if topic is None or not isinstance(partition, int) or not isinstance(offset, int):
        return None
    return KafkaRecord(topic, partition, offset)


def _title(part: _Affected, row: dict[str, Any], about: dict[str, Any], at: int) -> str:
    """Return the sentence that says what is wrong, since when and for how long."""
    name = part.title
    kind, since, last, other = row["kind"], row["since_ts_millis"], row["last_ts_millis"], ""
    lasting = f"since {when(since)} ({span(max(0, at - since))})"
    if kind == "failure":
        again = (
            f", {row['times']:,} times, last {span(max(0, at - last))} ago" if row["times"] > 1 and last > since else ""
        )
        is_long_running = row["entity"] == "query" or row["is_long_running"]
        running = row["running_since_ts_millis"]
        if part.is_whole and running is not None and running >= last:
            # The failure is over with the first success, so nothing has succeeded yet.
            awaited = "committed" if is_long_running else "finished"
            failed = f"failed at {when(since)} ({span(max(0, at - since))} ago){again}"
            return f"{name} {failed}, runs again since {when(running)}, nothing {awaited} yet"
        is_down = part.is_whole and is_long_running and running is None
        return f"{name} has {'been down' if is_down else 'failed'} {lasting}{again}"
    if kind == "ended":
        if row["entity"] == "query" or row["is_long_running"]:
            return f"{name} has been down {lasting}; its last run is {row['cause']}"
        return f"{name}: its last run has been {row['cause']} {lasting}"
    if kind == "silent":
        what = "commit" if row["entity"] == "query" else "event"
        if (running := row["running_since_ts_millis"]) is not None and row["silent_since_ts_millis"] is None:
            # The latest run is not silent, but an older one of the same name.
            name = f"Run {row['app_id']} of {name[0].lower()}{name[1:]}"
            other = f"; another run is active since {when(running)}"
        # Events of one moment say nothing about the interval.
        usual = f", usually every {span(row['usual_ms'])}" if row["usual_ms"] else ""
        return f"{name} is silent: no {what} {lasting}{usual}{other}"
    if kind == "crash-loop":
        ago = f"the last failure was {span(max(0, at - last))} ago" if last else "the failure is older"
        if row["times"] < _LOOP:
            return f"{name} was down for {span(row['down_ms'])} of the last hour; {ago}"
        return f"{name} is in a crash loop: {_of_last_hour(row['times'])}{_down(row)}; {ago}"
    if kind == "overdue":
        return f"{name}: {_overdue(about, since, at)}"
    reporter = f"Reporter '{about.get('spark.events.reporter.name', '?')}' of '{named(row['app_name'])}'"
    return f"{reporter} has been open {lasting}"


def _overdue(about: dict[str, Any], since: int, at: int) -> str:
    what = str(about.get("spark.deadline.subject") or "work")
    number = about.get({"batch": "spark.batch.id", "job": "spark.job.id", "stage": "spark.stage.id"}.get(what, ""))
    limit = about.get("spark.deadline.limit_ms")
    work = what if number is None else f"{what} {number}"
    lasting = f"since {when(since)} ({span(max(0, at - since))})"
    return f"{work} has been overdue {lasting}" + (f", limit {span(limit)}" if limit else "")


def _hidden(row: dict[str, Any], late: dict[str, Any], at: int) -> str:
    """Return what else is wrong: the crash loop, the silence or the overdue work that the shown problem hides."""
    hidden = []
    failed = row["failed_runs"] or 0
    if row["kind"] != "crash-loop" and failed and (row["kind"] != "failure" or failed > row["times"]):
        hidden.append(_of_last_hour(failed) + (_down(row) if row["kind"] == "silent" else ""))
    elif row["kind"] == "silent" and row["down_ms"]:
        hidden.append(f"down for {span(row['down_ms'])} of the last hour")
    if row["kind"] != "silent" and (since := row["silent_since_ts_millis"]) is not None:
        hidden.append(f"silent since {when(since)} ({span(max(0, at - since))})")
    if late:
        hidden.append(_overdue(late, row["late_since"], at))
    return "".join(f"; {one}" for one in hidden)


def _of_last_hour(failed: int) -> str:
    return f"{counted(failed, 'run')} failed in the last hour"


def _down(row: dict[str, Any]) -> str:
    return f", down for {span(row['down_ms'])}" if row["down_ms"] else ""


def _joined(what: str, some: list[tuple[str, ProblemCard]]) -> ProblemCard:
    """Return one card for several queries, or failed parts of one application, with the same problem."""
    cards = [one for _, one in some]
    first = min(cards, key=lambda one: one.since)
    if len(some) == 1:
        return first
    state = {"silent": "are silent", "overdue": "are overdue"}.get(first.kind, "fail repeatedly")
    runs_again = first.kind == "failure" and what == "query" and first.running_since is not None
    if first.kind in ("failure", "ended"):
        state = "have failed" if what != "query" or runs_again else "are down"
    title = f"{counted(len(some), what, _PLURALS.get(what))} of '{named(first.application)}' {state}"
    failed = sum(one.failed_runs for one in cards)
    hidden = f"; {_of_last_hour(failed)}" if failed and first.kind == "silent" else ""
    if runs_again and all(one.running_since is not None and one.running_since >= one.last for one in cards):
        hidden = "; they run again, nothing committed yet"
    names = ", ".join(sorted(name for name, _ in some)[:3])
    more = f" and {len(some) - 3:,} more" if len(some) > 3 else ""
    since = f"since {when(first.since)} ({span(first.duration_ms)})"
    joined = dataclasses.replace(
        first,
        title=f"{title} {since}: {names}{more}{hidden}",
        subjects=tuple(dict.fromkeys(one.subject for one in cards)),
        incident_keys=tuple(sorted({key for one in cards for key in one.incident_keys})),
        times=max(one.times for one in cards),
        incidents=len(cards),
        last=max(one.last for one in cards),
        alarms=sum(one.alarms for one in cards),
        failed_runs=failed,
    )
    return dataclasses.replace(joined, text=card(joined))


def _links(about: dict[str, Any], has_ended: bool) -> tuple[Link, ...]:
    """Return the links, the most useful first. The driver's UI works only while the application runs."""
    known = [
        ("runbook", _RUNBOOK),
        ("history server", "spark.history.url"),
        *(() if has_ended else (("Spark UI", "spark.ui.url"),)),
        ("YARN", "spark.yarn.tracking_url"),
        ("log", "spark.log.url"),
        ("trace", "spark.trace.url"),
    ]
    return tuple(
        Link(name, url)
        for name, key in known
        if isinstance(url := about.get(key), str) and url.startswith(("https://", "http://"))
    )


def _command(place: str, application: str, app_id: str | None, key: str | None) -> str:
    command = f"spark-events why {shlex.quote(place)} {shlex.quote(typed(application, app_id))}"
    return command if key is None else f"{command} --incident {shlex.quote(typed_key(key, _slug(key)))}"


def _slug(key: str) -> str:
    return hashlib.blake2b(key.encode("utf-8", "replace"), digest_size=6).hexdigest()


def _text(about: dict[str, Any], key: str) -> str | None:
    value = about.get(key)
    return None if value in (None, "") else on_one_line(str(value))


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None
