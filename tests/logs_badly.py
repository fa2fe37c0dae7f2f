"""Reporters that reconfigure logging.

Only sidecars may import this module, because the import itself changes logging.
"""

from __future__ import annotations

import logging
import logging.config
import os
from collections.abc import Sequence

from spark_events import Event
from spark_events.reporters.file.file_reporter import FileReporter

# As some programs do, disable existing loggers on import and remove the handlers of the root logger.
logging.config.dictConfig({"version": 1, "root": {"level": "WARNING", "handlers": []}})


class ReconfiguresLogging(FileReporter):
    """Reporter that reconfigures logging again in every call."""

    def report(self, events: Sequence[Event]) -> None:
        logging.basicConfig(level=logging.WARNING, force=True)
        super().report(events)


class DisablesLogging(FileReporter):
    """Reporter that disables all logging."""

    def report(self, events: Sequence[Event]) -> None:
        logging.disable(logging.CRITICAL)
        super().report(events)


class LogsBadMessages(FileReporter):
    """Reporter that delivers its events, and then logs two messages: one cannot be formatted, one cannot be encoded."""

    def report(self, events: Sequence[Event]) -> None:
        super().report(events)
        logging.getLogger("library").warning("%d items", "many")
        logging.getLogger("library").warning("skipped %s", os.fsdecode(b"caf\xe9"))
