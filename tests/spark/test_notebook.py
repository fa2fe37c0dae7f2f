"""Tests in a real notebook kernel: repeated cells, cells with await, and displayed events."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from missing import need
from spark.harness import SMALL_SPARK, environment

pytestmark = [pytest.mark.spark, pytest.mark.any_spark, pytest.mark.timeout(1800)]

_CELL_SECONDS = 300

Cell = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    """Return a function that runs a cell.

    The function returns a dictionary: the cell's result by MIME type, and the printed output as ``stdout``.
    """
    need("ipykernel", "jupyter_client.manager")
    manager = importlib.import_module("jupyter_client.manager")
    folder = tmp_path_factory.mktemp("notebook")
    (folder / "spark-defaults.conf").write_text("".join(f"{key}  {value}\n" for key, value in SMALL_SPARK.items()))
    env = environment({"SPARK_CONF_DIR": str(folder), "IPYTHONDIR": str(folder), "JUPYTER_RUNTIME_DIR": str(folder)})
    kernel, client = manager.start_new_kernel(
        kernel_name="python3", env=env, cwd=str(folder), startup_timeout=_CELL_SECONDS
    )

    def run(code: str) -> dict[str, Any]:
        shown: dict[str, Any] = {"stdout": ""}

        def hook(message: Any) -> None:
            content = message["content"]
            if message["msg_type"] in ("execute_result", "display_data"):
                shown.update(content["data"])
            elif message["msg_type"] == "stream" and content["name"] == "stdout":
                shown["stdout"] += content["text"]
            elif message["msg_type"] == "error":
                shown["error"] = "\n".join(content["traceback"])

        reply = client.execute_interactive(code, output_hook=hook, timeout=_CELL_SECONDS)
        assert reply["content"]["status"] == "ok", shown.get("error")
        return shown

    try:
        run(
            "from pyspark.sql import SparkSession\n"
            "import spark_events\n"
            "spark = spark_events.configure(SparkSession.builder.appName('notebook'), sidecar=False).getOrCreate()"
        )
        yield run
    finally:
        client.stop_channels()
        kernel.shutdown_kernel()


START = "import threading\nevents = spark_events.start(spark)\nheard, calls = [], threading.Semaphore(0)"
CALLBACK = "@events.on('Mine')\ndef hears(event):\n    heard.append(event.attributes['n'])\n    calls.release()"
CALLED = "assert calls.acquire(timeout=100)"
ADD = (
    "event = spark_events.EventBuilder('shop.orders', 'Mine').set_attribute('n', {n}).set_body('<b>12</b> orders')\n"
    "spark_events.add_event(event)\n"
    "found = events.wait_for('Mine', where=lambda e: e.attributes['n'] == {n}, timeout=100)"
)


def test_repeated_cells_duplicate_no_event(cell: Cell) -> None:
    cell(START)
    cell(CALLBACK)
    cell(CALLBACK)
    cell(ADD.format(n=1))
    cell(CALLED)
    cell("first = events")
    cell(START)
    cell(ADD.format(n=2))
    # Wait for the call: queued events of a replaced callback do not reach its replacement.
    cell(CALLED)
    cell(CALLBACK)
    cell(ADD.format(n=3))
    shown = cell("events.stop()\nprint(first.is_running, sorted(heard))")
    # The second run of the cell registered the callback again. This callback appended the second event to the new list.
    assert shown["stdout"].split("\n")[0] == "False [2, 3]"


def test_a_cell_can_await(cell: Cell) -> None:
    """A cell can await an event in the event loop of the kernel."""
    cell(START)
    shown = cell(
        "spark_events.add_event(spark_events.EventBuilder('a.b', 'Awaited'))\n"
        "print((await events.wait_for_async('Awaited', timeout=100)).name)"
    )
    assert shown["stdout"] == "Awaited\n"


def test_events_are_displayed(cell: Cell) -> None:
    """Events and the stream are displayed as a line of text and as HTML without active content."""
    cell(START)
    cell(ADD.format(n=4))
    shown = cell("found")
    assert "&lt;b&gt;12&lt;/b&gt; orders" in shown["text/html"]
    assert "<b>12</b>" not in shown["text/html"]
    assert shown["text/plain"].endswith(" INFO Mine: <b>12</b> orders>")
    stream = cell("events")
    assert stream["text/plain"].startswith("<EventStream running, started at ")
    assert "&lt;b&gt;12&lt;/b&gt; orders" in stream["text/html"]
