"""Tests of random faults: no guaranteed event is missing, and no event has two ids.

A failure prints the seed, but the timing differs in each run.
"""

from __future__ import annotations

import random
import signal
from collections import Counter
from concurrent.futures import Future
from itertools import chain

import pytest
from faults.repeated import facts
from faults.storm import Outcome, reported, run_with_faults
from spark.harness import Lab

pytestmark = [pytest.mark.spark, pytest.mark.faults, pytest.mark.long, pytest.mark.timeout(1800)]

#: Events of the dispatcher. No record causes these events, so they are not sent again.
OWN = ("ReporterStatusChangeEvent", "ReporterQueueEvent", "DispatcherReportEvent")


@pytest.fixture(scope="module")
def storms(lab: Lab) -> dict[str, Future[Outcome]]:
    # An even seed selects the dispatcher `sync`, an odd seed `async-queued`.
    seed = random.randrange(1_000_000)
    return {
        "ends": lab.background(run_with_faults, lab, seed, dies=False),
        "killed": lab.background(run_with_faults, lab, seed + 1, dies=True),
    }


@pytest.fixture(params=["ends", "killed"])
def outcome(request: pytest.FixtureRequest, storms: dict[str, Future[Outcome]]) -> Outcome:
    return storms[request.param].result()


def test_the_job_s_result_does_not_change(outcome: Outcome) -> None:
    assert outcome.run.process.returncode == (-signal.SIGKILL if outcome.dies else 0), outcome
    assert (outcome.run.folder / "stopping").exists() != outcome.dies, outcome


def test_no_commit_is_missing(outcome: Outcome) -> None:
    """After a normal exit, every commit is reported. If the driver was killed, no earlier commit is missing."""
    # Spark keeps only the last hundred commit files, so the test computes the earlier batch ids.
    committed = set(range(max(outcome.run.commits("steady")) + 1))
    for name, events in outcome.delivered.items():
        found = reported(events)
        assert found == set(range(len(found))), (name, outcome)
        assert len(found) >= outcome.seen, (name, outcome)
        assert found == committed or outcome.dies, (name, outcome)


def test_every_status_has_one_id(outcome: Outcome) -> None:
    """Repeated deliveries of a status change have the same id."""
    last = [("application", "LOST")] if outcome.dies else [("query", "FINISHED"), ("application", "FINISHED")]
    for name, events in outcome.delivered.items():
        delivered = [one["attributes"] for one in facts(events).values() if one["name"] == "JobStatusChangeEvent"]
        assert Counter((change["spark.entity"], change["spark.status.new"]) for change in delivered) == Counter(
            [("application", "RUNNING"), ("query", "RUNNING"), *last]
        ), (name, outcome)


def test_all_reporters_get_the_same_events(outcome: Outcome) -> None:
    """Every reporter receives every event with the same content."""
    facts(chain.from_iterable(outcome.delivered.values()))
    audit, alone, hook = (
        {one["event_id"] for one in events if one["name"] not in OWN} for events in outcome.delivered.values()
    )
    assert audit == alone == hook, outcome
