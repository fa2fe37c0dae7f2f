"""Bar charts of the results in build/bench, as SVG, for benchmarks that have a ratio or a count per line.

`make bench` writes the charts if matplotlib is installed: ``.venv/bin/python -m pip install --group plots``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = ["bars", "plot"]


class _Chart(NamedTuple):
    """Title of a chart, and the column of the table and the number of columns that name a bar.

    Without a column, the benchmark prints lines of text, and the first number after the colon counts.
    """

    title: str
    column: str = ""
    names: int = 1


_CHARTS = {
    "adaptive": _Chart("goodput relative to the best fixed setting"),
    "drops": _Chart("dropped events of a burst, slow reporter", "dropped"),
    "frameworks": _Chart("answered rows/s relative to enrich", "ratio to enrich", 2),
    "order": _Chart("time of an ordered run relative to an unordered run"),
    "otlp_outage": _Chart("time to shut down relative to the SDK", "ratio to the SDK"),
    "peers": _Chart("time of spark-submit relative to no listener", "run"),
}


def bars(lines: Sequence[str], column: str = "", names: int = 1) -> dict[str, float]:
    """Return the values of a chart by name.

    Args:
        lines: a Markdown table between other lines, or lines of text such as ``name: 1.20 times as long``.
        column: the column of the table with the values. A value without a number is omitted, and so is a value with a
            unit, such as the reference in a column of ratios.
        names: the number of leading columns that name a bar.
    """
    if not column:
        found = [re.match(r"([^|:]+): \D*(\d+\.\d+)\b", line) for line in lines]
        return {match[1]: float(match[2]) for match in found if match}
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines if line.startswith("| ")]
    at = next((cells.index(column) for cells in rows if column in cells), None)
    values: dict[str, float] = {}
    for cells in rows:
        # The head of a table may begin with an empty cell, so columns count from the end.
        value = None if at is None else re.fullmatch(r"(?:× )?([\d.,]+)(?: \(.*\))?", cells[at - len(rows[0])])
        if value:
            values[": ".join(cells[:names])] = float(value[1].replace(",", ""))
    return values


def plot(results: Mapping[str, Sequence[str]], folder: Path) -> list[Path]:
    """Write a chart of horizontal bars for each benchmark with a chart; return the files."""
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt

    written = []
    # Text stays text, and ids depend on no random number, so that a chart is small and changes with its values only.
    with plt.rc_context({"svg.fonttype": "none", "svg.hashsalt": "spark-events", "font.size": 9}):
        for name, lines in results.items():
            chart = _CHARTS.get(name)
            values = bars(lines, chart.column, chart.names) if chart else {}
            if chart is None or not values:
                continue
            figure, axes = plt.subplots(figsize=(8, 0.8 + 0.28 * len(values)), layout="constrained")
            colors = ["#d95f02" if "enrich" in key or "spark-events" in key else "#9aa5b1" for key in values]
            drawn = axes.barh(list(values), list(values.values()), color=colors, height=0.7)
            axes.bar_label(drawn, labels=[f"{value:,g}" for value in values.values()], padding=3)
            axes.invert_yaxis()
            axes.margins(x=0.1)
            axes.spines[["top", "right"]].set_visible(False)
            axes.set_title(chart.title, loc="left")
            written.append(folder / f"{name}.svg")
            figure.savefig(written[-1], metadata={"Date": None})
            plt.close(figure)
    return written
