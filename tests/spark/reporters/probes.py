"""Reporters for tests; the sidecar finds them through PYTHONPATH."""

import asyncio
import dataclasses
import json
import pathlib
import sys

from spark_events.config import option, text
from spark_events.reporters.file import FileReporter
from spark_events.reporters.reporter import Reporter


@dataclasses.dataclass(frozen=True)
class InterpreterConfig:
    path: str = option("path", text("the path of a file"), doc="Where to write which Python this is.")


class Interpreter(Reporter):
    """Writes down which Python runs the sidecar, and where it has the package from."""

    Config = InterpreterConfig

    def open(self):
        found = {"executable": sys.executable, "package": sys.modules["spark_events"].__file__}
        with open(self.config.path, "w") as file:
            json.dump(found, file)

    def report(self, events):
        pass


@dataclasses.dataclass(frozen=True)
class GatedFileConfig:
    path: str = option("path", text("the path of a file"), doc="The file.")
    folder: str = option("folder", text("the path of a folder"), doc="Where it says 'held', and waits for 'go'.")


class GatedFile(FileReporter):
    """A ``file`` reporter that holds back the end of the application until it is told to go on."""

    Config = GatedFileConfig

    def __init__(self, config):
        super().__init__(config)
        self._folder = pathlib.Path(config.folder)

    async def report(self, events):
        if any(event.name == "JobStatusChangeEvent" and event.attributes["spark.entity"] == "application"
               and event.attributes["status.new"] != "RUNNING" for event in events):  # fmt: skip
            (self._folder / "held").touch()
            while not (self._folder / "go").exists():  # noqa: ASYNC110 (a file has no event)
                await asyncio.sleep(0.02)
        super().report(events)
