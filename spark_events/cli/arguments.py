"""Arguments that several commands have."""

from __future__ import annotations

import argparse

from spark_events.event import Severity

__all__ = ["add_min_severity"]


def add_min_severity(parser: argparse.ArgumentParser) -> None:
    """``--min-severity``, in any case; the name of a :class:`Severity`."""
    parser.add_argument(
        "--min-severity",
        type=str.upper,
        choices=[severity.value for severity in Severity],
        default=Severity.TRACE.value,
        help="leave out what is less severe",
    )
