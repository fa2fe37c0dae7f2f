"""How long each run has been silent, by the clock of the watcher.

The life of a run, as a watcher sees it::

    ┌─────────┐  no sign for N intervals   ┌────────┐  event delivered   ┌──────┐
    │  ALIVE  │ ─────────────────────────▶ │ SILENT │ ─────────────────▶ │ LOST │
    └─────────┘ ◀───────────────────────── └────────┘                    └──────┘
         │               a new sign            │
         └──────────── end event ──────────────┴──▶ ended: not watched

Rules:

1. Silence begins when the watcher reads a new sign of life, and is measured with the monotonic clock. So no jump of a
   wall clock causes a LOST event, or prevents one.
2. Only when the watcher sees a run for the first time, its silence begins at the sign's own time, so that a run that
   died long ago is LOST at once. A time in the future counts as now.
3. After the source could not be read, the watcher judges nothing for N intervals, because the applications' reporters
   must deliver the heartbeats of that time.
"""

from __future__ import annotations

import msgspec

from spark_events.clocks import Clocks
from spark_events.watch.sightings import Sighting, Sightings


class Sign(msgspec.Struct, array_like=True):
    """Latest sign of life of a run: sequence number and time as in :attr:`Sighting.sign`, begin of the silence."""

    sequence: int
    at: int
    since: float


class Observed(msgspec.Struct):
    """What a watcher has observed; times are in seconds of the monotonic clock.

    Attributes:
        failed: whether the last check could not read the source.
        judges_from: time from which silence counts, after the source could not be read; None if it was readable.
        signs: latest sign of life of each run, by application id and attempt.
    """

    failed: bool = False
    judges_from: float | None = None
    signs: dict[str, Sign] = {}


class Silence:
    """Silence of all runs.

    Args:
        intervals: number of intervals without a sign of life after which a run is LOST.
        clocks: the clocks of this process.
        observed: what earlier watchers of the same source have observed on this machine, since its last start.
    """

    def __init__(self, intervals: float, clocks: Clocks, observed: Observed) -> None:
        self._intervals = intervals
        self._clocks = clocks
        self.observed = observed

    def fail(self) -> None:
        """Note that the source could not be read."""
        self.observed.failed = True

    def observe(self, sightings: Sightings, *, is_complete: bool = True) -> None:
        """Note the signs of life that were read from the source.

        Args:
            sightings: all runs that the source shows.
            is_complete: whether all parts of the source could be read; otherwise the other runs are remembered.
        """
        seen = self.observed
        now = self._clocks.monotonic()
        watched = [one for one in sightings if one.is_watched]
        known = {} if is_complete else seen.signs
        seen.signs = known | {_name(one): self._sign(one, now, sightings.now) for one in watched}
        if seen.failed:
            longest = max((one.interval for one in watched), default=0)
            seen.judges_from = now + self._intervals * longest / 1000
        seen.failed = False

    def _sign(self, one: Sighting, now: float, wall: int) -> Sign:
        known = self.observed.signs.get(_name(one))
        sequence, at = one.sign
        if known is None or (sequence, at) < (known.sequence, known.at):
            # Nothing is known of the run, also if its events were replaced.
            return Sign(sequence, at, now - one.age(wall) / 1000)
        is_new = sequence > known.sequence or at > known.at
        return Sign(sequence, at, now) if is_new else known

    def left(self, one: Sighting) -> float:
        """Return the seconds until a watched run is LOST, unless it shows life; negative if it is LOST."""
        now, judges_from = self._clocks.monotonic(), self.observed.judges_from
        left = self._intervals * one.interval / 1000 - (now - self.observed.signs[_name(one)].since)
        return left if judges_from is None or now >= judges_from else max(left, judges_from - now)


def _name(one: Sighting) -> str:
    return "\x1f".join(one.identity)
