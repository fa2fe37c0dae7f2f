"""Reporters for tests; the sidecar finds them through PYTHONPATH."""

import dataclasses
import json
import sys
import time

from spark_events.config import duration, option, text
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
class SlowFileConfig:
    path: str = option("path", text("the path of a file"), doc="The file.")
    pause: float = option("pause", duration, 0.5, doc="How long one report takes.")


class SlowFile(FileReporter):
    """A ``file`` reporter that takes its time."""

    Config = SlowFileConfig

    def __init__(self, config):
        super().__init__(config)
        self._pause = config.pause

    def report(self, events):
        time.sleep(self._pause)
        super().report(events)
