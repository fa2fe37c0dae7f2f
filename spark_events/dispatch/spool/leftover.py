"""What an earlier run has promised, and nobody delivers any more: its reporter is gone, or promises less."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterable

from spark_events.dispatch.spool.config import SpoolConfig, directory_of
from spark_events.dispatch.spool.files import abandoned

__all__ = ["warn_of_leftovers"]

_LOG = logging.getLogger(__name__)


def warn_of_leftovers(application: str, configs: Iterable[SpoolConfig], spooling: Collection[str]) -> None:
    """Says which spools of the application stay as they are, where such spools are looked for.

    Args:
        application: its name.
        configs: where its reporters have theirs; the usual place is looked at as well.
        spooling: the reporters that will deliver what is in theirs.
    """
    # A directory that cannot be read, or no home: who spools will say so.
    with contextlib.suppress(OSError, RuntimeError):
        for directory in sorted({directory_of(config) for config in (*configs, SpoolConfig())}):
            for reporter, path in abandoned(directory, application):
                if reporter not in spooling:
                    _LOG.warning(
                        "events of an earlier run wait in %s for a reporter %s with delivery.guarantee=at-least-once;"
                        " this application has none, so they stay there",
                        path,
                        reporter,
                    )
