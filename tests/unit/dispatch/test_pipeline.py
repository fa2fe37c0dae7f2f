"""Tests of the pipeline that settings define: every error is reported, and the default is a log reporter."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import msgspec
import pytest
from fakes import event, eventually

from spark_events import ConfigError, Event, Reporter, Severity
from spark_events.config import Settings, option, text
from spark_events.dispatch.entries import Entry
from spark_events.dispatch.pipeline import Pipeline, build
from spark_events.dispatch.process.process_reporter import ProcessReporter
from spark_events.dispatch.selection import may_fit
from spark_events.errors import MissingExtraError
from spark_events.reporters.file import FileReporter
from spark_events.reporters.log_reporter import LogReporter


class Collecting(Reporter):
    """User-defined reporter with its own key."""

    @dataclasses.dataclass(frozen=True, slots=True)
    class Config:
        colour: str = option("colour", text("a colour"), doc="Of what.")

    made: ClassVar[list[Collecting]] = []

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.events: list[Event] = []
        Collecting.made.append(self)

    def report(self, events: Sequence[Event]) -> None:
        self.events.extend(events)


class OnlyEnds(Collecting):
    """Reporter that ignores all events except ends."""

    default_includes = "*:End"


class BadDefault(Collecting):
    default_includes = "spark stage"


class Broken(Reporter):
    def __init__(self, config: Any) -> None:
        raise RuntimeError("no licence")

    def report(self, events: Sequence[Event]) -> None:
        raise AssertionError


class NoExtra(Reporter):
    def __init__(self, config: Any) -> None:
        raise MissingExtraError("nothing is installed")

    def report(self, events: Sequence[Event]) -> None:
        raise AssertionError


class Exits(Reporter):
    def __init__(self, config: Any) -> None:
        sys.exit("no licence")

    def report(self, events: Sequence[Event]) -> None:
        raise AssertionError


class Slow(Collecting):
    """Reporter whose constructor waits until the test has received the warning."""

    noticed: ClassVar[Callable[[], bool]]

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        eventually(Slow.noticed)


class Unfinished(Reporter):
    """Reporter without the method report()."""


def pipeline(**settings: str) -> Pipeline:
    return build(Settings.of(keys(settings), "a file"))


def keys(settings: dict[str, str]) -> dict[str, str]:
    """Convert keyword arguments to keys: a__b=c becomes events.a.b = c, and three underscores become a dash."""
    return {"events." + key.replace("___", "-").replace("__", "."): value for key, value in settings.items()}


def problems(**settings: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        pipeline(**settings)
    return caught.value.problems


def reporters(made: Pipeline) -> dict[str, type]:
    return {delivery.name: type(delivery.make()) for delivery in made.deliveries}


def test_the_default_is_a_log_reporter() -> None:
    """Without reporter settings, a log reporter is active, so one line in spark-defaults.conf is sufficient."""
    made = pipeline()
    assert reporters(made) == {"log": LogReporter}
    (delivery,) = made.deliveries
    assert not may_fit(delivery.selection, None, None, Severity.DEBUG)
    assert may_fit(delivery.selection, None, None, Severity.INFO)
    assert made.awaited() == []
    assert made.plans.config.shutdown_timeout == 10.0


def test_all_configured_reporters_are_active() -> None:
    """Without events.reporters, every reporter with a type is active, and the default log reporter is not active."""
    made = pipeline(reporter__audit__type="file", reporter__audit__path="/x", reporter__console__type="log")
    assert reporters(made) == {"audit": FileReporter, "console": LogReporter}


def test_events_reporters_selects_the_reporters_and_their_order() -> None:
    configured = {"reporter__b__type": "log", "reporter__a__type": "log", "reporter__c__type": "memory"}
    assert list(reporters(pipeline(reporters="c, b", **configured))) == ["c", "b"]


def test_the_configured_dispatcher_is_used() -> None:
    """With events.dispatcher.type=sync, the driver waits for every reporter; by default, for none of these."""
    assert pipeline(dispatcher__type="async-queued").awaited() == []
    assert "job_end" in pipeline(dispatcher__type="sync").awaited()


@pytest.mark.parametrize(("includes", "accepted"), [({}, 1), ({"filter__includes": "*"}, 2)])
def test_a_type_may_receive_only_some_events(includes: dict[str, str], accepted: int) -> None:
    """A type receives the events in its ``default_includes``, unless ``filter.includes`` is set."""
    chosen = {f"reporter__mine__{key}": value for key, value in {**includes, "filter__excludes": "*:Start"}.items()}
    made = pipeline(reporter__mine__type=f"{__name__}:OnlyEnds", reporter__mine__colour="red", **chosen)
    (delivery,) = made.deliveries
    for number, name in enumerate(("Start", "Commit", "End")):
        delivery.put([Entry(1, msgspec.structs.replace(event(number), name=name))])
    assert delivery.counters().accepted == accepted


def test_an_invalid_default_filter_is_a_problem_of_the_type() -> None:
    """If ``default_includes`` of a type is invalid, the message names the type's key."""
    (problem,) = problems(reporter__mine__type=f"{__name__}:BadDefault", reporter__mine__colour="red")
    assert problem.startswith("events.reporter.mine.type: cannot be used: default_includes: pattern 1 is invalid")


@pytest.mark.parametrize("prefix", ["", "spark."])
@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"events.reporter.mine.type": f"{__name__}:BadDefault", "events.reporter.mine.colour": "red"}, "mine.type"),
        ({"events.reporter.a b.type": "log"}, "a…"),
        ({"events.reporter.a.type": "file"}, "a.path"),
    ],
)
def test_a_problem_has_the_prefix_that_the_user_wrote(prefix: str, settings: dict[str, str], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build(Settings.of({f"{prefix}{name}": value for name, value in settings.items()}, "a file"))
    assert caught.value.problems[0].startswith(f"{prefix}events.reporter.{key}: ")


def test_a_user_s_reporter_gets_its_config_and_events() -> None:
    """A reporter of type package.module:Class with its own keys works like a built-in reporter."""
    made = pipeline(reporter__mine__type=f"{__name__}:Collecting", reporter__mine__colour="red")
    made.dispatcher.start()
    made.dispatcher.dispatch([Entry(1, event(1))], 1)
    eventually(lambda: made.dispatcher.progress().settled_seq == 1)
    made.dispatcher.stop(time.monotonic() + 20)
    mine = Collecting.made[-1]
    assert mine.config == Collecting.Config(colour="red")
    assert [e.body for e in mine.events] == ["1"]


def test_a_name_without_a_reporter_is_rejected() -> None:
    """The message about a name without settings contains the name, the missing key and the configured names."""
    assert problems(reporters="audit, consol", reporter__console__type="log") == (
        "events.reporters: given 'audit', but events.reporter.audit.type is not set; configured reporters: console",
        "events.reporters: given 'consol', but events.reporter.consol.type is not set; configured reporters: console",
    )
    (problem,) = problems(reporters="audit")
    assert problem.endswith("configured reporters: none")


def test_a_reporter_without_a_type_is_one_problem() -> None:
    """A reporter without a type causes one problem. Its other keys are not checked, because they depend on the type."""
    (problem,) = problems(reporter__audit__path="/x", reporter__audit__whatever="y")
    assert problem.startswith(
        "events.reporter.audit.type: required, but not set; expected one of database, email, file, "
    )


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("flie", "no such type"),
        ("no.such.module:Reporter", "no.such.module cannot be imported: ModuleNotFoundError"),
        (f"{__name__}:Settings", "Settings is not a subclass of spark_events.Reporter"),
        (f"{__name__}:Missing", "has no Missing"),
    ],
)
def test_an_unusable_type_is_rejected_with_the_reason(given: str, reason: str) -> None:
    """The message about an unusable reporter type contains the value, the reason, the allowed values and the origin."""
    (problem,) = problems(reporter__audit__type=given, reporter__audit__path="/x")
    assert problem.startswith(f"events.reporter.audit.type: given {given!r} (")
    assert reason in problem
    assert problem.endswith("package.module:Class for your own reporter; set in a file")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("Broken", "events.reporter.mine: the reporter cannot be created: RuntimeError: no licence"),
        (
            "Exits",
            "events.reporter.mine: the reporter cannot be created: RuntimeError: the reporter tried to end its",
        ),
        (
            "Unfinished",
            "events.reporter.mine.type: given 'unit.dispatch.test_pipeline:Unfinished' (Unfinished does not define",
        ),
    ],
)
def test_a_failing_constructor_is_reported_with_the_name(given: str, reason: str) -> None:
    """An error in a reporter's constructor is reported as a problem of its settings, with the reporter's name."""
    (problem,) = problems(reporter__mine__type=f"{__name__}:{given}")
    assert problem.startswith(reason)


@pytest.mark.parametrize("name", ["", "ä", "a b", "a/b"])
def test_a_reporter_s_name_is_validated(name: str) -> None:
    """Reporter names, including those in events.reporters, are validated: metrics and spool paths contain them."""
    with pytest.raises(ConfigError) as caught:
        build(Settings.of({f"events.reporter.{name}.type": "log"}, "a file"))
    (problem,) = caught.value.problems
    assert problem.startswith("events.reporter.")
    assert problem.endswith(": invalid name of a reporter, expected letters, digits, '-' and '_'")


@pytest.mark.parametrize(
    "settings", [{"reporter__a__delivery__guarantee": "guaranteed"}, {"dispatcher__type": "sync"}, {}]
)
def test_the_events_of_one_record_fit_if_the_driver_waits(settings: dict[str, str]) -> None:
    """If the driver waits, a mailbox of any configured size accepts all events of one record.

    The dispatcher cannot wait between two events of a record.
    """
    kinds = {"dispatcher__type": "async-queued", "reporter__a__type": "log", "dispatcher__queue__size": "1"}
    (delivery,) = pipeline(**{**kinds, **settings}).deliveries
    delivery.put([Entry(1, event(n)) for n in range(32)])
    assert delivery.counters().dropped == ({} if settings else {"mailbox-full": 31})


def test_a_retired_key_causes_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    pipeline(reporter__a__type="log", incident__settle="5s")
    assert [record.getMessage() for record in caplog.records] == [
        "spark.events.incident.settle has no effect: alarms are decided at once, from facts; remove the key"
    ]


def test_environment_tags_and_identity() -> None:
    made = pipeline(reporter__a__type="log", environment="prod", tags__team="payments", identity="team")
    identity = made.plans.translation.identity
    assert identity.attributes == {"deployment.environment.name": "prod", "spark.tag.team": "payments"}
    assert identity.key_attributes == ("deployment.environment.name", "spark.tag.team")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"tags__9": "x"}, "events.tags.9: invalid name of a tag, expected letters, digits, '_', '.' and '-'"),
        ({"tags__team": ""}, "events.tags.team: given an empty value, expected a text"),
        ({"identity": "team"}, "events.identity: given 'team', but events.tags.team is not set; set it, or remove"),
        ({"alarms__jobs": "("}, "events.alarms.jobs: given a value that is not shown (not a regular expression: "),
    ],
)
def test_mistakes_in_alarms_and_tags(settings: dict[str, str], problem: str) -> None:
    (found,) = problems(reporter__a__type="log", **settings)
    assert found.startswith(problem)


def test_inactive_reporters_are_not_checked() -> None:
    """Inactive reporters' settings have no effect: references are not resolved, and types are not imported."""
    made = pipeline(
        reporters="console",
        reporter__console__type="log",
        reporter__audit__type="no.such.module:Reporter",
        reporter__audit__token="${env:NO_SUCH_VARIABLE}",
        reporter__audit__timeout="10",
        reporter__audit__retry__max="${env:NO_SUCH_VARIABLE}",
    )
    assert reporters(made) == {"console": LogReporter}
    assert made.disabled == {}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"path": "${env:NO_SUCH_VARIABLE}"},
            "events.reporter.bad.path: given '${env:NO_SUCH_VARIABLE}' (the sidecar's",
        ),
        ({"path": "/x", "timeout": "soon"}, "events.reporter.bad.timeout: given 'soon', expected"),
        ({"path": "/x", "pfad": "/y"}, "events.reporter.bad.pfad: unknown key; set in"),
        ({"path": "/x", "type": "no.such:Class"}, "events.reporter.bad.type: given 'no.such:Class' (no.such cannot be"),
        (
            {"type": f"{__name__}:Broken"},
            "events.reporter.bad: the reporter cannot be created: RuntimeError: no licence",
        ),
        (
            {"type": f"{__name__}:NoExtra"},
            "events.reporter.bad: the reporter cannot be created: MissingExtraError: nothing",
        ),
        (None, "events.reporters: given 'bad', but events.reporter.bad.type is not set; configured reporters: good"),
    ],
)
def test_an_unusable_reporter_is_disabled_and_other_reporters_run(
    settings: dict[str, str] | None, message: str
) -> None:
    """An unusable reporter is disabled, and the other reporters run.

    With events.required or strict checking, an error is raised.
    """
    bad = {} if settings is None else {"type": "file", **settings}
    keys_ = {f"events.reporter.bad.{key}": value for key, value in bad.items()}
    given = {**keys_, "events.reporters": "good, bad", "events.reporter.good.type": "log"}
    made = build(Settings.of(given, "a file"))
    assert reporters(made) == {"good": LogReporter}
    assert [delivery.name for delivery in made.deliveries] == ["good"]
    ((name, (problem,)),) = made.disabled.items()
    assert name == "bad"
    assert problem.startswith(message)
    for strict, required in ((True, "false"), (False, "true")):
        with pytest.raises(ConfigError) as caught:
            build(Settings.of({**given, "events.required": required}, "a file"), strict=strict)
        assert caught.value.problems == (problem,)


def test_settings_without_a_usable_reporter_are_rejected() -> None:
    """If no reporter is usable, the error lists all problems, because no reporter can report them as events."""
    found = problems(reporter__a__type="file", reporter__b__type=f"{__name__}:Unfinished")
    assert [problem.partition(":")[0] for problem in found] == ["events.reporter.a.path", "events.reporter.b.type"]


@pytest.mark.parametrize("given", ["", " "])
def test_an_empty_python_is_the_default(given: str) -> None:
    """An empty `events.python` selects the default. Driver and sidecar both strip white space from the value."""
    assert pipeline(python=given.strip()).plans.config.python is None


def test_a_key_of_another_type_is_unknown() -> None:
    """A key of another reporter type, such as ``path`` for the log reporter, is unknown."""
    (problem,) = problems(reporter__console__type="log", reporter__console__path="/x")
    assert problem.startswith("events.reporter.console.path: unknown key; set in")


def test_problems_of_all_parts_are_reported_together() -> None:
    """One error contains the problems of all settings, from the dispatcher to the last reporter."""
    found = problems(
        dispatcher__type="fast",
        dispatcher__queue__size="0",
        required="perhaps",
        repoters="a",
        reporter__a__type="file",
    )
    assert [problem.partition(":")[0] for problem in found] == [
        "events.required",
        "events.dispatcher.type",
        "events.dispatcher.queue.size",
        "events.reporter.a.path",
        "events.repoters",
    ]
    assert found[-1].endswith("did you mean events.reporters?")
    assert found[1] == "events.dispatcher.type: given 'fast', expected one of sync, async-queued; set in a file"


@pytest.mark.parametrize(
    ("dispatcher", "guarantee", "linger"),
    [
        ("async-queued", "best-effort", 5.0),
        ("async-queued", "at-least-once", 5.0),
        ("async-queued", "guaranteed", 0.0),
        ("sync", "best-effort", 0.0),
        ("sync", "at-least-once", 5.0),
    ],
)
def test_a_guaranteed_reporter_does_not_linger(dispatcher: str, guarantee: str, linger: float) -> None:
    """A guaranteed reporter does not wait to fill a batch, because Spark waits until the event is delivered."""
    settings = {"a__type": "log", "a__delivery__guarantee": guarantee, "a__batch__linger": "5s"}
    (delivery,) = pipeline(
        dispatcher__type=dispatcher, **{f"reporter__{key}": value for key, value in settings.items()}
    ).deliveries
    assert delivery.config.batch_linger == linger


def test_requests_wait_for_more_events_and_appends_do_not() -> None:
    """Reporters that send requests wait for further events to fill a batch. Reporters that append to files do not."""
    kinds = {
        "otlp": {},
        "kafka": {"bootstrap.servers": "127.0.0.1:9", "topic": "t"},
        "database": {"url": "sqlite:////x"},
        "webhook": {"url": "http://127.0.0.1:9"},
        "file": {"path": "/x"},
        "log": {},
    }
    given = {f"events.reporter.{kind}.type": kind for kind in kinds}
    given |= {f"events.reporter.{kind}.{key}": value for kind, keys in kinds.items() for key, value in keys.items()}
    given |= {"events.reporter.each.type": "webhook", "events.reporter.each.format": "json-each"}
    given |= {"events.reporter.each.url": "http://127.0.0.1:9"}
    made = build(Settings.of(given))
    lingers = {delivery.name: delivery.make().linger for delivery in made.deliveries}
    requests = dict.fromkeys(("otlp", "kafka", "database", "webhook"), 0.2)
    assert lingers == {**requests, "file": 0.0, "log": 0.0, "each": 0.0}


def test_isolation_process_selects_the_process_reporter() -> None:
    """With isolation=process, this process passes the settings on, and neither constructs nor opens the reporter."""
    made = pipeline(reporter__audit__type="file", reporter__audit__path="/x", reporter__audit__isolation="process")
    assert reporters(made) == {"audit": ProcessReporter}


def test_an_unknown_isolation_is_rejected() -> None:
    """An unknown isolation is rejected before a process starts, because all settings are validated first."""
    found = problems(reporter__a__type="log", reporter__a__isolation="container", reporter__b__type="file")
    assert found == (
        "events.reporter.a.isolation: given 'container', expected one of thread, process; set in a file",
        "events.reporter.b.path: required, but not set; expected the path of a file",
    )


def test_a_slow_constructor_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """If a reporter's constructor is slow, a warning names the reporter: no event is delivered until it returns."""
    message = "reporter slow: its constructor has not returned for 3 s"
    Slow.noticed = lambda: message in caplog.text
    pipeline(reporter__slow__type=f"{__name__}:Slow", reporter__slow__colour="red")
    assert caplog.text.count(message) == 1
