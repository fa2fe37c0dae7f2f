"""Reporter whose ``report`` never returns."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from spark_events import Event, Reporter


class Hung(Reporter):
    """Reporter that blocks its thread forever and cannot be interrupted."""

    def report(self, events: Sequence[Event]) -> None:
        """Block forever."""
        threading.Event().wait()
