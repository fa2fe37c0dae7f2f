"""Tests of the constants of the engine: a benchmark can vary each of them."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest
from virtual_engine import VirtualRun

from spark_events.enrichment import engine
from spark_events.enrichment.engine.job_share import JobShareTuning
from spark_events.enrichment.engine.ledger import LedgerTuning
from spark_events.enrichment.engine.process import ProcessTuning
from spark_events.enrichment.engine.timeouts import TimeoutTuning
from spark_events.enrichment.engine.tuning import EngineTuning


def parts_of(tuning: Any) -> Iterator[type]:
    """Yield the classes of a tuning and of all tunings that it contains."""
    yield type(tuning)
    for field in dataclasses.fields(tuning):
        if dataclasses.is_dataclass(value := getattr(tuning, field.name)):
            yield from parts_of(value)


def test_a_caller_can_pass_every_tuning() -> None:
    names = [f"{engine.__name__}.{module.name}" for module in pkgutil.iter_modules(engine.__path__)]
    modules = [importlib.import_module(name) for name in names]
    defined = {
        one
        for module in modules
        for name, one in vars(module).items()
        if name.endswith("Tuning") and one.__module__ == module.__name__
    }
    # Arguments of Engine, Process, Ledger and JobShare.
    given = [EngineTuning(), ProcessTuning(), LedgerTuning(), JobShareTuning()]
    assert {part for tuning in given for part in parts_of(tuning)} == defined


@pytest.mark.parametrize("grace", [1.0, 5.0])
def test_a_run_uses_the_tuning_that_it_is_given(grace: float) -> None:
    async def stubborn(row: Any) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        await asyncio.sleep(60)

    tuning = EngineTuning(timeouts=TimeoutTuning(grace_seconds=grace))
    run = VirtualRun(stubborn, tuning=tuning, timeout=10, retry=None, on_failure="null")
    run.of([1])
    assert 10 + grace <= run.times[0] < 10.5 + grace
