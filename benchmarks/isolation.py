"""Measure the effect of bad reporters on a good reporter's throughput and p99: each kind, each pair, all kinds.

The good reporter is a ``file`` reporter. Three processes measure it alternately, in short windows: alone; with idle
reporters; with the same number of bad reporters. The ratio to "alone" is the total effect; the ratio to "idle" is the
effect of the bad behavior. Each process is stopped (SIGSTOP) while another one is measured.

Bad reporters have a timeout of 1 s, a short retry back-off and a circuit breaker that opens only after 1,000
failures, so that bad behavior happens often; ``ISOLATION_SETTINGS=default`` uses the default settings. The first row
compares two idle reporters: its distance from 1 is the noise of the machine. The second row is a
good reporter that computes for 0.2 ms in each call, about the cost of starting a thread; it is the baseline for
reporters that leak threads.

Throughput is measured with a flood of records that are translated and dispatched at full speed; latency is the time
from dispatch to the written file, at 2,000 events per second. ``ISOLATION_FLOOD=events`` uses events built in advance.
These events arrive about ten times as fast as translated events, so this mode mostly measures contention for the GIL.

``ISOLATION_WINDOWS`` (9): windows per kind. ``ISOLATION_PAIRS`` (1): windows per pair before the benchmark repeats the
pairs that miss the target with more windows; 0 omits pairs. ``ISOLATION_KINDS``: kinds to measure, separated by
semicolons. A full run takes 40 minutes, without pairs about twelve.
"""

from __future__ import annotations

import itertools
import os
import signal
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks._isolated import GOOD, NOTHING, Subject, Window, subject

_WINDOWS = int(os.environ.get("ISOLATION_WINDOWS", "9"))
_PAIRS = int(os.environ.get("ISOLATION_PAIRS", "1"))
_CLOSER = 3
_TARGET = 0.10
#: These kinds use the processor continuously (they spin, or start and exit), which slows down every other program.
_BUSY = {
    "raises odd things in a process",
    "spins in a thread",
    "spins in a process",
    "holds the lock in a process",
    "exits in a process",
    "segfaults in a process",
}
_GROUPS = {
    "that hang": {
        "blocks (def)",
        "blocks (async def)",
        "awaits for ever",
        "swallows its cancellation",
        "blocks in open",
    },
    "that raise": {"raises always", "raises at random", "raises odd things", "returns garbage", "dies in open"},
    "that are slow, or are bad in the end": {"slow", "dies in close", "blocks in close"},
    "that leak": {"leaks memory", "leaks threads", "leaks descriptors"},
}


class Costs(NamedTuple):
    """Throughput and p99 with bad reporters, as ratios to "alone" and "idle", with the absolute figures."""

    throughput: float
    p99: float
    throughput_to_idle: float
    p99_to_idle: float
    rate: float
    seconds: float
    lost: int

    @property
    def is_met(self) -> bool:
        """Return whether both ratios to idle reporters meet the target."""
        return self.throughput_to_idle >= 1 - _TARGET and self.p99_to_idle <= 1 + _TARGET


def _costs(alone: Subject, idle: Subject, kinds: Sequence[str], windows: int) -> Costs:
    seen: tuple[list[Window], list[Window], list[Window]] = ([], [], [])
    with subject(kinds) as bad:
        for _ in range(windows):
            for found, process in zip(seen, (alone, idle, bad), strict=True):
                found.append(process.window())
    by, side, pipeline_with = seen
    slowest = _p99(pipeline_with)
    return Costs(
        _ratio(pipeline_with, by),
        slowest / _p99(by),
        _ratio(pipeline_with, side),
        slowest / _p99(side),
        statistics.median(window.throughput for window in pipeline_with),
        slowest,
        sum(window.lost for window in pipeline_with),
    )


def _ratio(ones: Sequence[Window], others: Sequence[Window]) -> float:
    """Return the median ratio of consecutive windows."""
    return statistics.median(one.throughput / other.throughput for one, other in zip(ones, others, strict=True))


def _p99(windows: Sequence[Window]) -> float:
    """Return the p99 over all windows together, because the tail of a single window contains too few events."""
    return statistics.quantiles(itertools.chain.from_iterable(window.latencies for window in windows), n=100)[98]


def _print_row(what: str, costs: Costs) -> None:
    throughput = f"{costs.throughput:5.2f} {costs.throughput_to_idle:5.2f} {costs.rate:9,.0f}"
    p99 = f"{costs.p99:5.2f} {costs.p99_to_idle:5.2f} {costs.seconds * 1e3:7.2f}"
    print(f"{what:48} {throughput}   {p99}   {costs.lost:6}{'' if costs.is_met else '  <'}", flush=True)


def _head(what: str) -> None:
    print(f"{what:48} {'throughput, ratio to':21}   {'p99, ratio to':19}   lost by")
    print(f"{'':48} alone  idle   /second   alone  idle      ms   the good one")


def run() -> None:
    """Print the ratios, and mark results that miss the target of 10 %."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    # On SIGTERM, exit through the context managers, so that no spinning process survives.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    from misbehaving import KINDS

    names = [name for name in os.environ.get("ISOLATION_KINDS", ";".join(KINDS)).split(";") if name]
    with subject([]) as alone:
        _head("with one reporter that ...")
        with subject([NOTHING]) as idle:
            for name in (*GOOD, *names):
                _print_row(name, _costs(alone, idle, [name], _WINDOWS))
        if _PAIRS:
            _head("with two reporters")
            with subject([NOTHING, NOTHING]) as idle:
                pairs = {
                    pair: _costs(alone, idle, pair, _PAIRS)
                    for pair in itertools.combinations_with_replacement(names, 2)
                }
                # A single window is noisy, so measure the pairs that miss the target again, with more windows.
                pairs |= {pair: _costs(alone, idle, pair, _CLOSER) for pair, costs in pairs.items() if not costs.is_met}
            worst = sorted(pairs.items(), key=lambda item: item[1].throughput_to_idle)
            for pair, costs in [(pair, costs) for pair, costs in worst if not costs.is_met]:
                _print_row(" + ".join(pair), costs)
            _summary(list(pairs.values()))
        _head("with all reporters ...")
        groups = {
            **_GROUPS,
            "that run in a thread, and do not spin": set(names) - _BUSY,
            "except the one that spins in a thread": set(names) - {"spins in a thread"},
            "of every kind": set(names),
        }
        for what, members in groups.items():
            if kinds := [name for name in names if name in members]:
                with subject([NOTHING] * len(kinds)) as idle:
                    _print_row(what, _costs(alone, idle, kinds, _WINDOWS))


def _summary(pairs: Sequence[Costs]) -> None:
    met = sum(costs.is_met for costs in pairs)
    throughput = statistics.median(costs.throughput_to_idle for costs in pairs)
    p99 = statistics.median(costs.p99_to_idle for costs in pairs)
    print(f"{met} of {len(pairs)} pairs are within {_TARGET:.0%}; the pairs listed above are not.")
    print(f"The median pair's ratio to idle: throughput {throughput:.2f}, p99 {p99:.2f}")


if __name__ == "__main__":
    run()
