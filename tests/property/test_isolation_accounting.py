"""Tests that faulty reporters do not affect a working reporter, and that all counters balance."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from fakes import balances, event, read_events
from hypothesis import given, settings
from hypothesis import strategies as st
from misbehaving import KINDS, RELEASE, pipeline_with, release

from spark_events.dispatch.entries import Entry


@settings(max_examples=40, deadline=None)
@given(
    kinds=st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=5),
    slices=st.lists(st.integers(1, 40), min_size=1, max_size=12),
)
def test_a_working_reporter_gets_every_event_despite_faulty_reporters(kinds: list[str], slices: list[int]) -> None:
    """Whatever faulty reporters run in the same dispatcher, a working reporter receives every event.

    Faulty reporters lose only their own events, and each loss is counted. A kind of fault may occur twice.
    """
    RELEASE.clear()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "events.jsonl")
        pipeline = pipeline_with(kinds, path, timeout="200ms")
        dispatcher = pipeline.dispatcher
        dispatcher.start()
        done = 0
        for count in slices:
            dispatcher.dispatch([Entry(done + n + 1, event(done + n)) for n in range(count)], done + count)
            done += count
        running = dispatcher.counters()
        assert pipeline.deliveries[0].wait_until_settled(20)
        dispatcher.stop(time.monotonic() + 0.1)
        counters = dispatcher.counters()
        release()
        assert [int(one["body"]) for one in read_events(path)] == list(range(done))
        assert (counters["good"].delivered, counters["good"].lost) == (done, 0)
        assert all(balances(one) and one.accepted == done for one in running.values())
        assert all(balances(one) and one.accepted == done and one.held == 0 for one in counters.values())
