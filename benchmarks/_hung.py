"""A reporter that never answers, and never gives its thread back."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from spark_events import Event, Reporter


class Hung(Reporter):
    """Blocks for ever, and cannot be interrupted."""

    def report(self, events: Sequence[Event]) -> None:
        """Never returns."""
        threading.Event().wait()
