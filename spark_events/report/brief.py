"""A card and the next commands in at most eight lines, for :mod:`spark_events.cli.why`.

A line that is longer than the terminal is continued on lines that are not needed otherwise, and is cut in its middle if
there are none. Links and commands stay whole, because they are copied.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from spark_events.report.cards import rows
from spark_events.report.report_model import ProblemCard

_MOST = 8
_INDENT = 11
_LINKS = "links"


def brief(problem: ProblemCard, needed: Sequence[str], useful: Sequence[str], width: int | None) -> list[str]:
    """Return the card and the commands.

    Args:
        problem: the problem.
        needed: commands, at most two.
        useful: commands for which there may be no line.
        width: width of the terminal; None: no line is continued or cut.
    """
    known = {name: value for name, value in rows(problem) if name != "next"}
    times = known.pop("times", None)
    if times is not None:
        known["where"] += f"; {times}"
    facts = [("", problem.title), *known.items()]
    spare = _MOST - len(facts) - len(needed)
    lines = []
    for name, value in facts:
        text = f"  {name}:".ljust(_INDENT) + value if name else value
        some = [text] if width is None else _fitted(text, width, 1 + spare, is_whole=name == _LINKS)
        lines += some
        spare -= len(some) - 1
    commands = [*needed, *useful[:spare]]
    return [*lines, *(("" if number else "  next:").ljust(_INDENT) + one for number, one in enumerate(commands))]


def fitted(text: str, width: int | None) -> str:
    """Return the text, cut in its middle to the width of the terminal; None: whole.

    >>> fitted("the beginning, much between them, and the end", 20)
    'the begi…and the end'
    """
    if width is None or len(text) <= width:
        return text
    # The end is more useful: it says since when, and whether a rerun helps.
    end = (width - 1) * 3 // 5
    return f"{text[: width - 1 - end]}…{text[len(text) - end :]}"


def _fitted(text: str, width: int, most: int, *, is_whole: bool) -> list[str]:
    """Return the text in at most ``most`` lines."""
    if len(text) <= width:
        return [text]
    lines = textwrap.wrap(
        text,
        max(width, 2 * _INDENT),
        subsequent_indent=" " * _INDENT,
        break_long_words=not is_whole,
        break_on_hyphens=False,
    )
    last = " ".join([lines[most - 1], *map(str.strip, lines[most:])]) if len(lines) > most else lines[-1]
    return [*lines[: most - 1], last if is_whole else fitted(last, width)] if len(lines) > most else lines
