"""What bad reporters cost a good one: its throughput and its p99 latency alone, and beside each kind, pair, and all.

The good reporter is a ``file``. It is measured in three processes by turns, in short windows: alone; beside as many
reporters that do nothing; beside the bad ones. The first comparison is what an operator asks, the second says what of
it is the badness. While the others are measured, the bad ones are stopped (SIGSTOP). Bad reporters never get the rest
that the circuit breaker would give them, and their timeout is a tenth of the default, so that whatever they do happens
often; with ``ISOLATION_SETTINGS=default`` they have all that as it is shipped. The first row is a good neighbour
measured against a good neighbour: as far as it is off from 1, the machine is too busy for what follows to be believed.
The second is a neighbour with nothing bad about it but that each call computes for a fifth of a millisecond, as it
takes to start a thread: no more than that is to be seen beside one that leaks threads. Throughput is a flood of
records, translated and dispatched as fast as a sidecar does it; latency is from dispatch to a written file, at a steady
2,000 events a second. With ``ISOLATION_FLOOD=events`` the flood is of events that are made beforehand: some ten times
what ever comes from the translation, so that next to nothing but the interpreter's lock, which all share, is measured.

``ISOLATION_WINDOWS`` (9): windows a kind; ``ISOLATION_PAIRS`` (1): windows a pair before a closer look at those that
are not within the target, 0 leaves pairs out; ``ISOLATION_KINDS``: some of the kinds, separated by semicolons.
Everything takes 40 minutes, without pairs some twelve.
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
#: What these take of the processors (they spin, or start and die all the time) is gone for any program.
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
    """Ratios beside the bad ones, to being alone and to being beside as many that do nothing."""

    throughput: float
    p99: float
    throughput_to_idle: float
    p99_to_idle: float
    rate: float
    seconds: float
    lost: int

    @property
    def is_met(self) -> bool:
        """Within the target, beside what as many good ones cost."""
        return self.throughput_to_idle >= 1 - _TARGET and self.p99_to_idle <= 1 + _TARGET


def _costs(alone: Subject, idle: Subject, kinds: Sequence[str], windows: int) -> Costs:
    seen: tuple[list[Window], list[Window], list[Window]] = ([], [], [])
    with subject(kinds) as bad:
        for _ in range(windows):
            for found, process in zip(seen, (alone, idle, bad), strict=True):
                found.append(process.window())
    by, side, beside = seen
    slowest = _p99(beside)
    return Costs(
        _ratio(beside, by),
        slowest / _p99(by),
        _ratio(beside, side),
        slowest / _p99(side),
        statistics.median(window.throughput for window in beside),
        slowest,
        sum(window.lost for window in beside),
    )


def _ratio(ones: Sequence[Window], others: Sequence[Window]) -> float:
    """The median of the ratios of windows that followed each other."""
    return statistics.median(one.throughput / other.throughput for one, other in zip(ones, others, strict=True))


def _p99(windows: Sequence[Window]) -> float:
    """Of all of them together: in one alone, it would be what a handful of events met with."""
    return statistics.quantiles(itertools.chain.from_iterable(window.latencies for window in windows), n=100)[98]


def _tell(what: str, costs: Costs) -> None:
    throughput = f"{costs.throughput:5.2f} {costs.throughput_to_idle:5.2f} {costs.rate:9,.0f}"
    p99 = f"{costs.p99:5.2f} {costs.p99_to_idle:5.2f} {costs.seconds * 1e3:7.2f}"
    print(f"{what:48} {throughput}   {p99}   {costs.lost:6}{'' if costs.is_met else '  <'}", flush=True)


def _head(what: str) -> None:
    print(f"{what:48} {'throughput, ratio to':21}   {'p99, ratio to':19}   lost by")
    print(f"{'':48} alone  idle   /second   alone  idle      ms   the good one")


def run() -> None:
    """Prints the ratios; within 10 % is promised, and what is not is marked."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    # A benchmark that is told to end leaves nobody behind who spins.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    from misbehaving import KINDS

    names = [name for name in os.environ.get("ISOLATION_KINDS", ";".join(KINDS)).split(";") if name]
    with subject([]) as alone:
        _head("beside one that ...")
        with subject([NOTHING]) as idle:
            for name in (*GOOD, *names):
                _tell(name, _costs(alone, idle, [name], _WINDOWS))
        if _PAIRS:
            _head("beside two")
            with subject([NOTHING, NOTHING]) as idle:
                pairs = {
                    pair: _costs(alone, idle, pair, _PAIRS)
                    for pair in itertools.combinations_with_replacement(names, 2)
                }
                # One window is little: those that do not show it there are looked at more closely.
                pairs |= {pair: _costs(alone, idle, pair, _CLOSER) for pair, costs in pairs.items() if not costs.is_met}
            worst = sorted(pairs.items(), key=lambda item: item[1].throughput_to_idle)
            for pair, costs in [(pair, costs) for pair, costs in worst if not costs.is_met]:
                _tell(" + ".join(pair), costs)
            _summary(list(pairs.values()))
        _head("beside all ...")
        groups = {
            **_GROUPS,
            "that run in a thread, and do not spin": set(names) - _BUSY,
            "but the one that spins in a thread": set(names) - {"spins in a thread"},
            "of them": set(names),
        }
        for what, members in groups.items():
            if kinds := [name for name in names if name in members]:
                with subject([NOTHING] * len(kinds)) as idle:
                    _tell(what, _costs(alone, idle, kinds, _WINDOWS))


def _summary(pairs: Sequence[Costs]) -> None:
    met = sum(costs.is_met for costs in pairs)
    throughput = statistics.median(costs.throughput_to_idle for costs in pairs)
    p99 = statistics.median(costs.p99_to_idle for costs in pairs)
    print(f"{met} of {len(pairs)} pairs are within {_TARGET:.0%}; those above are not.")
    print(f"The median pair's ratio to idle: throughput {throughput:.2f}, p99 {p99:.2f}")


if __name__ == "__main__":
    run()
