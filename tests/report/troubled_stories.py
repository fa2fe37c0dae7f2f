"""Stories of applications in unusual trouble, each as it would be on :data:`NOW`."""

from __future__ import annotations

from typing import Any

from report.stories import HOUR, MINUTE, SECOND, START, ApplicationStory, QueryStory, Story
from spark_events import Severity

NOW = START + 96 * HOUR
#: A name of 300 characters with an override of the writing direction, an escape sequence and a line break.
HOSTILE = "\u202egnp.exe\u202c \x1b[31mred\x1b[0m\n" + "\u05d0\u05d1\u05d2 payments " * 23 + "x" * 4


def new_checkpoint_every_hour() -> Story:
    """A query that starts each hour with a new checkpoint, and commits all the time."""
    story = Story()
    for hour in range(6, 0, -1):
        begin = NOW - hour * HOUR
        app = story.application("hourly", f"app-{hour}")
        app.status("RUNNING", begin)
        query = app.query("book", f"run-{hour}", f"id-{hour}")
        query.status("RUNNING", begin + SECOND)
        for minute in range(1, 60):
            query.commit(begin + minute * MINUTE, 900)
        if hour > 1:
            query.status("FINISHED", begin + 59 * MINUTE + 30 * SECOND)
            app.status("FINISHED", begin + 59 * MINUTE + 31 * SECOND)
    return story


def healthy_staging_beside_silent_production() -> Story:
    """Production stopped committing an hour ago; staging, of the same names, started later and commits."""
    story = Story()
    for environment, began, last in (("prod", 8, 70), ("staging", 3, 1)):
        app = story.application("etl", f"app-{environment}")
        app.base["deployment.environment.name"] = environment
        app.status("RUNNING", NOW - began * HOUR)
        query = app.query("book", f"run-{environment}", f"id-{environment}")
        query.status("RUNNING", NOW - began * HOUR + SECOND)
        for minute in range(170, last - 1, -1):
            query.commit(NOW - minute * MINUTE, 900)
    return story


def regular_commits(minutes: int) -> Story:
    """A query that has committed at a regular interval for three hours."""
    story = Story()
    app = story.application("etl", "app-1")
    app.status("RUNNING", NOW - 3 * HOUR)
    query = app.query("book", "run-1")
    query.status("RUNNING", NOW - 3 * HOUR + SECOND)
    for minute in range(175, 0, -minutes):
        query.commit(NOW - minute * MINUTE, 900)
    return story


def hostile_names() -> Story:
    """An application and a query with names that would harm a terminal or a page, both down."""
    story = Story()
    app = story.application(HOSTILE, "app-hostile")
    app.status("RUNNING", NOW - 3 * HOUR)
    query = app.query(HOSTILE, "run-hostile", "id-hostile")
    query.status("RUNNING", NOW - 3 * HOUR)
    for minute in range(170, 60, -1):
        query.commit(NOW - minute * MINUTE, 900)
    query.failure(NOW - HOUR, "query", **{"incident.role": "alarm", "incident.key": "hostile/failure"})
    query.status("FAILED", NOW - HOUR)
    app.status("FAILED", NOW - HOUR + SECOND)
    return story


def seventy_one_queries_with_one_cause() -> Story:
    """All 71 queries of an application fail, because the broker is gone; the application runs."""
    story = Story()
    app = story.application("fan-out", "app-1")
    app.status("RUNNING", NOW - 3 * HOUR)
    for number in range(71):
        query = app.query(f"topic-{number:02d}", f"run-{number}", f"id-{number}")
        query.status("RUNNING", NOW - 3 * HOUR + number * SECOND)
        for minute in (170, 169, 168):
            query.commit(NOW - minute * MINUTE, 900)
        failed = NOW - 20 * MINUTE + number * SECOND
        key = {"incident.role": "alarm", "incident.key": f"fan-out/query=topic-{number:02d}/failure"}
        query.failure(failed, "query", "org.apache.kafka.common.errors.TimeoutException: no broker", **key)
        query.status("FAILED", failed)
    app.event("HeartbeatEvent", NOW - SECOND, Severity.DEBUG)
    return story


def unknown_end_after_a_failed_job() -> Story:
    """A batch application whose last job failed, and whose exit code nobody knows."""
    story = Story()
    for day in (3, 2, 1):
        app = story.application("nightly", f"app-{day}")
        app.status("RUNNING", NOW - day * 24 * HOUR)
        if day == 1:
            app.failure(NOW - day * 24 * HOUR + 9 * MINUTE, "job", **{"incident.role": "member"})
        app.status("ENDED" if day == 1 else "FINISHED", NOW - day * 24 * HOUR + 10 * MINUTE)
        if day == 1:
            # The product raises this alarm after an unknown outcome, if the last job has failed.
            alarm = {"incident.role": "alarm", "incident.key": "nightly/failure"}
            app.failure(NOW - day * 24 * HOUR + 10 * MINUTE, "application", **alarm)
    app.event("HeartbeatEvent", NOW - SECOND, Severity.DEBUG)
    return story


def three_days_without_an_event() -> Story:
    """A file whose newest event is three days old; its query had committed each minute."""
    story = Story()
    app = story.application("quiet", "app-1")
    app.status("RUNNING", NOW - 76 * HOUR)
    query = app.query("book", "run-1")
    query.status("RUNNING", NOW - 76 * HOUR)
    for minute in range(180, -1, -1):
        query.commit(NOW - 72 * HOUR - minute * MINUTE, 900)
    return story


def clock_that_goes_back() -> Story:
    """A query that commits all the time; after an hour, the clock of its machine goes back by two hours."""
    story = Story()
    app = story.application("wobbly", "app-1")
    app.status("RUNNING", NOW - 2 * HOUR)
    query = app.query("book", "run-1")
    query.status("RUNNING", NOW - 2 * HOUR + SECOND)
    for minute in range(1, 61):
        query.commit(NOW - 2 * HOUR + minute * MINUTE, 900)
    for minute in range(1, 180):
        query.commit(NOW - 3 * HOUR + minute * MINUTE, 900)
    return story


def committing(minutes: int = 180) -> tuple[Story, ApplicationStory, QueryStory]:
    """An application whose only query has committed each minute until now, with heartbeats."""
    story = Story()
    app = story.application("shop", "app-1")
    app.status("RUNNING", NOW - minutes * MINUTE)
    query = app.query("book", "run-1")
    query.status("RUNNING", NOW - minutes * MINUTE + SECOND)
    for minute in range(minutes - 1, -1, -1):
        query.commit(NOW - minute * MINUTE, 900)
        app.event("HeartbeatEvent", NOW - minute * MINUTE, Severity.DEBUG)
    return story, app, query


def failed_parts(*works: str, entity: str = "job") -> Story:
    """Parts of an application fail with one cause, while its query commits."""
    story, app, _ = committing()
    for number, work in enumerate(works):
        about: dict[str, Any] = {"incident.role": "alarm", "incident.key": f"shop/job={work}/failure"}
        if entity == "job":
            about["spark.job.group"] = work
        else:
            about |= {"incident.key": f"shop/{number}/failure", "spark.sql.execution.id": work}
        app.failure(NOW - 10 * MINUTE + number, entity, **about)
    return story


def two_job_groups_fail() -> Story:
    """Two job groups fail with one cause, while the only query of their application commits."""
    return failed_parts("load", "export")


def one_job_group_fails() -> Story:
    """A job group fails, while the only query of its application commits."""
    return failed_parts("load")


def runs_again(*names: str) -> Story:
    """Queries that failed 70 minutes ago, run again for 65 minutes, and have not committed yet; heartbeats arrive."""
    story = Story()
    for run, began, ended in ((1, 180, 70), (2, 65, 0)):
        app = story.application("shop", f"app-{run}")
        app.status("RUNNING", NOW - began * MINUTE)
        for name in names:
            query = app.query(name, f"{name}-{run}", f"id-{name}")
            query.status("RUNNING", NOW - began * MINUTE)
            if ended:
                query.commit(NOW - 90 * MINUTE, 900)
                key = {"incident.role": "alarm", "incident.key": f"shop/query={name}/failure"}
                query.failure(NOW - ended * MINUTE, "query", **key)
                query.status("FAILED", NOW - ended * MINUTE)
        if ended:
            app.status("FAILED", NOW - ended * MINUTE)
        heartbeats(app, began - 1, ended)
    return story


def failed_query_runs_again() -> Story:
    """A query that failed, and runs again without a commit."""
    return runs_again("book")


def heartbeats(app: ApplicationStory, since: int, until: int = 0) -> None:
    """Add a heartbeat each minute; both limits are minutes before now."""
    for minute in range(since, until, -1):
        app.event("HeartbeatEvent", NOW - minute * MINUTE, Severity.DEBUG)


def silent_since_a_restart(commits: int = 0) -> Story:
    """A query that committed each minute for six hours, restarted, and has hung since; its application is alive."""
    story = Story()
    app = story.application("restarted", "app-1")
    app.status("RUNNING", NOW - 8 * HOUR)
    query = app.query("book", "run-1")
    query.status("RUNNING", NOW - 8 * HOUR)
    for minute in range(480, 122, -1):
        query.commit(NOW - minute * MINUTE, 900)
    query.status("FINISHED", NOW - 121 * MINUTE)
    again = app.query("book", "run-2")
    again.status("RUNNING", NOW - 2 * HOUR)
    for number in range(commits):
        again.commit(NOW - 119 * MINUTE + number * SECOND, 900)
    heartbeats(app, 480)
    return story


def application_silent_since_a_restart() -> Story:
    """An application with heartbeats that restarted, and has reported nothing since its start."""
    story = Story()
    app = story.application("restarted", "app-1")
    app.status("RUNNING", NOW - 3 * HOUR)
    heartbeats(app, 180, 60)
    app.status("FINISHED", NOW - HOUR)
    story.application("restarted", "app-2").status("RUNNING", NOW - 30 * MINUTE)
    heartbeats(story.application("other", "app-3"), 10)
    return story


def silent_after_two_commits() -> Story:
    """A query that committed twice, a minute apart, three hours ago; its application is alive."""
    story = Story()
    app = story.application("young", "app-1")
    app.status("RUNNING", NOW - 3 * HOUR)
    query = app.query("book", "run-1")
    query.status("RUNNING", NOW - 3 * HOUR)
    for minute in (175, 174):
        query.commit(NOW - minute * MINUTE, 900)
    heartbeats(app, 180)
    return story


def older_run_hangs() -> Story:
    """Two runs of one name: the older one fell silent after the newer one had started, and has not ended."""
    story = Story()
    for number, until in ((1, 120), (2, 0)):
        app = story.application("twice", f"app-{number}")
        app.status("RUNNING", NOW - (300 - number) * MINUTE)
        heartbeats(app, 290, until)
    return story


def commit_in_the_future() -> Story:
    """A query that fell silent half an hour ago, and has one commit with a time in five hours; heartbeats arrive."""
    story = Story()
    app = story.application("ahead", "app-1")
    app.status("RUNNING", NOW - HOUR)
    query = app.query("book", "run-1")
    query.status("RUNNING", NOW - HOUR)
    for minute in range(59, 30, -1):
        query.commit(NOW - minute * MINUTE, 900)
    query.commit(NOW + 5 * HOUR, 900)
    heartbeats(app, 60)
    return story


STORIES = (
    new_checkpoint_every_hour,
    healthy_staging_beside_silent_production,
    hostile_names,
    seventy_one_queries_with_one_cause,
    unknown_end_after_a_failed_job,
    three_days_without_an_event,
    clock_that_goes_back,
    two_job_groups_fail,
    one_job_group_fails,
    failed_query_runs_again,
    silent_since_a_restart,
    application_silent_since_a_restart,
    silent_after_two_commits,
    older_run_hangs,
    commit_in_the_future,
)
