"""Whatever happens to processes and destinations: nothing that was promised is missing, and no fact is two.

A failure names the seed, though the times are never the same.
"""

from __future__ import annotations

import random
import signal
from collections import Counter
from concurrent.futures import Future
from itertools import chain

import pytest
from faults.retold import facts
from faults.storm import Outcome, reported, weather
from spark.harness import Lab

pytestmark = [pytest.mark.spark, pytest.mark.faults, pytest.mark.long, pytest.mark.timeout(1800)]

#: What the dispatch says of itself is not made of records, and not sent again.
OWN = ("ReporterStatusChangeEvent", "DispatcherReportEvent")


@pytest.fixture(scope="module")
def storms(lab: Lab) -> dict[str, Future[Outcome]]:
    # One of the two has an even seed, and the dispatcher `sync`.
    seed = random.randrange(1_000_000)
    return {
        "ends": lab.background(weather, lab, seed, dies=False),
        "killed": lab.background(weather, lab, seed + 1, dies=True),
    }


@pytest.fixture(params=["ends", "killed"])
def outcome(request: pytest.FixtureRequest, storms: dict[str, Future[Outcome]]) -> Outcome:
    return storms[request.param].result()


def test_a_job_ends_as_it_would_without(outcome: Outcome) -> None:
    """Whatever becomes of its events."""
    assert outcome.run.process.returncode == (-signal.SIGKILL if outcome.dies else 0), outcome
    assert (outcome.run.folder / "stopping").exists() != outcome.dies, outcome


def test_no_commit_is_missing(outcome: Outcome) -> None:
    """By the checkpoint; of a driver that was killed, those that its sidecar had been told of, without a gap."""
    # Spark keeps the last hundred.
    committed = set(range(max(outcome.run.commits("steady")) + 1))
    for name, events in outcome.told.items():
        found = reported(events)
        assert found == set(range(len(found))), (name, outcome)
        assert len(found) >= outcome.seen, (name, outcome)
        assert found == committed or outcome.dies, (name, outcome)


def test_every_status_is_told_once(outcome: Outcome) -> None:
    """As one fact, however often it was delivered."""
    last = [("application", "LOST")] if outcome.dies else [("query", "FINISHED"), ("application", "FINISHED")]
    for name, events in outcome.told.items():
        told = [one["attributes"] for one in facts(events).values() if one["name"] == "JobStatusChangeEvent"]
        assert Counter((change["spark.entity"], change["status.new"]) for change in told) == Counter(
            [("application", "RUNNING"), ("query", "RUNNING"), *last]
        ), (name, outcome)


def test_all_reporters_are_told_the_same(outcome: Outcome) -> None:
    """Each fact by every one of them, and in the same words."""
    facts(chain.from_iterable(outcome.told.values()))
    audit, alone, hook = (
        {one["event_id"] for one in events if one["name"] not in OWN} for events in outcome.told.values()
    )
    assert audit == alone == hook, outcome
