"""Reporters whose modules do with logging what they like. To be imported by sidecars alone: it is done here, too."""

from __future__ import annotations

import logging
import logging.config
import os
from collections.abc import Sequence

from spark_events import Event
from spark_events.reporters.file.reporter import FileReporter

# As programs do that are imported as if they were libraries: existing loggers are switched off, handlers closed.
logging.config.dictConfig({"version": 1, "root": {"level": "WARNING", "handlers": []}})


class SetsItUpAnew(FileReporter):
    """And once more in every call."""

    def report(self, events: Sequence[Event]) -> None:
        logging.basicConfig(level=logging.WARNING, force=True)
        super().report(events)


class SwitchesItOff(FileReporter):
    """Wants to hear nothing of its libraries."""

    def report(self, events: Sequence[Event]) -> None:
        logging.disable(logging.CRITICAL)
        super().report(events)


class LogsWhatCannotBe(FileReporter):
    """Delivers, and then logs what has no text."""

    def report(self, events: Sequence[Event]) -> None:
        super().report(events)
        logging.getLogger("library").warning("%d items", "many")
        logging.getLogger("library").warning("skipped %s", os.fsdecode(b"caf\xe9"))
