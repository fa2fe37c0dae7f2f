"""Bar charts of the results in build/bench, as SVG, for benchmarks that print a ratio or a count per line.

`make bench` writes the charts if matplotlib is installed: ``.venv/bin/python -m pip install --group plots``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = ["bars", "plot"]


class _Chart(NamedTuple):
    """Title, unit and column of the table by panel, and the number of columns that name a bar.

    Without a column, the benchmark prints lines of text, and the chart uses the first number after the colon.
    """

    panels: tuple[tuple[str, str, str], ...]
    names: int = 1


_CHARTS = {
    "adaptive": _Chart((("goodput relative to the best fixed setting", "", ""),)),
    "drops": _Chart((("dropped events", "", "dropped"), ("delay of the caller, s", " s", "delay of the caller"))),
    "frameworks": _Chart((("answered rows/s relative to enrich", "", "ratio to enrich"),), 2),
    "order": _Chart((("time of an ordered run relative to an unordered run", "", ""),)),
    "otlp_outage": _Chart((("time to shut down relative to the SDK", "", "ratio to the SDK"),)),
    "peers": _Chart((("time of spark-submit relative to no listener", "", "run"),)),
}


def bars(lines: Sequence[str], column: str = "", names: int = 1, unit: str = "") -> dict[str, float]:
    """Return the values of a chart by name.

    Args:
        lines: a Markdown table between other lines, or lines of text such as ``name: 1.20 times as long``.
        column: the column of the table with the values. A value with another unit is omitted, such as the reference in
            a column of ratios.
        names: the number of leading columns that name a bar.
        unit: the text after each number.
    """
    if not column:
        found = [re.match(r"([^|:]+): \D*(\d+\.\d+)\b", line) for line in lines]
        return {match[1]: float(match[2]) for match in found if match}
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines if line.startswith("| ")]
    at = next((cells.index(column) for cells in rows if column in cells), None)
    values: dict[str, float] = {}
    for cells in rows:
        # The header of a table may begin with an empty cell, so columns are counted from the last.
        value = None if at is None else re.fullmatch(rf"(?:× )?([\d.,]+){unit}(?: \(.*\))?", cells[at - len(rows[0])])
        if value:
            values[": ".join(cells[:names])] = float(value[1].replace(",", ""))
    return values


def plot(results: Mapping[str, Sequence[str]], folder: Path) -> list[Path]:
    """Write a horizontal bar chart for each benchmark that has one, and return the files."""
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt

    written = []
    # Text is not converted to paths, and ids are not random, so a chart is small and changes only with its values.
    with plt.rc_context({"svg.fonttype": "none", "svg.hashsalt": "spark-events", "font.size": 9}):
        for name, lines in results.items():
            chart = _CHARTS.get(name, _Chart(()))
            panels = [(title, bars(lines, column, chart.names, unit)) for title, unit, column in chart.panels]
            if not panels or not panels[0][1]:
                continue
            size = (8, 0.8 + 0.28 * len(panels[0][1]))
            figure, row = plt.subplots(1, len(panels), figsize=size, sharey=True, layout="constrained", squeeze=False)
            for axes, (title, values) in zip(row[0], panels, strict=True):
                colors = ["#d95f02" if re.search("enrich|spark-events", key) else "#9aa5b1" for key in values]
                drawn = axes.barh(list(values), list(values.values()), color=colors, height=0.7)
                axes.bar_label(drawn, labels=[f"{value:,g}" for value in values.values()], padding=3)
                axes.margins(x=0.2)
                axes.spines[["top", "right"]].set_visible(False)
                axes.set_title(title, loc="left")
            row[0][0].invert_yaxis()
            written.append(folder / f"{name}.svg")
            figure.savefig(written[-1], metadata={"Date": None})
            plt.close(figure)
    return written
