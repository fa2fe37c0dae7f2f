"""Reporters for tests. The sidecar finds this module through PYTHONPATH."""

import asyncio
import dataclasses
import json
import pathlib
import sys
import time
from collections.abc import Sequence

from spark_events.config import option, positive_duration, text
from spark_events.event import Event
from spark_events.reporters.file import FileConfig, FileReporter
from spark_events.reporters.reporter import Reporter


@dataclasses.dataclass(frozen=True)
class InterpreterConfig:
    path: str = option("path", text("the path of a file"), doc="Where to write which Python this is.")


class Interpreter(Reporter):
    """Reporter that records the path of the sidecar's Python and the location of the package."""

    Config = InterpreterConfig

    def open(self) -> None:
        found = {"executable": sys.executable, "package": sys.modules["spark_events"].__file__}
        with open(self.config.path, "w") as file:
            json.dump(found, file)

    def report(self, events: Sequence[Event]) -> None:
        pass


@dataclasses.dataclass(frozen=True)
class SignsConfig:
    path: str = option("path", text("the path of a file"), doc="The file.")
    folder: str = option("folder", text("the path of a folder"), doc="Where files are signs, to it and from it.")


class FileWithSigns(FileReporter):
    """``file`` reporter that communicates with a test through files in a folder."""

    Config = SignsConfig  # type: ignore[assignment]  # the file's config with a folder

    def __init__(self, config: SignsConfig) -> None:
        super().__init__(FileConfig(config.path))
        self.signs = pathlib.Path(config.folder)


class GatedFile(FileWithSigns):
    """Reporter that blocks on the application's end event.

    The reporter creates the file ``held``, and waits for the file ``go``.
    """

    async def report(self, events: Sequence[Event]) -> None:
        if any(event.name == "JobStatusChangeEvent" and event.attributes["spark.entity"] == "application"
               and event.attributes["spark.status.new"] != "RUNNING" for event in events):  # fmt: skip
            (self.signs / "held").touch()
            while not (self.signs / "go").exists():  # noqa: ASYNC110 (a file has no event)
                await asyncio.sleep(0.02)
        super().report(events)


class AwayFile(FileWithSigns):
    """Reporter that fails while the file ``away`` exists, and creates the file ``tried`` at its first attempt."""

    def report(self, events: Sequence[Event]) -> None:
        if (self.signs / "away").exists():
            (self.signs / "tried").touch()
            raise ConnectionError("the destination is away")
        super().report(events)


@dataclasses.dataclass(frozen=True)
class TimedConfig:
    path: str = option("path", text("the path of a file"), doc="Where to write which event was answered when.")
    duration: float = option("takes", positive_duration, 0.001, doc="How long it takes for a batch.")


class Timed(Reporter):
    """Slow reporter that records when each event arrives and when its delivery ends."""

    Config = TimedConfig

    async def report(self, events: Sequence[Event]) -> None:
        came = time.time()
        await asyncio.sleep(self.config.duration)
        with open(self.config.path, "a") as file:  # noqa: ASYNC230 (it is short)
            for event in events:
                known = {"name": event.name, "body": event.body, "status": event.attributes.get("spark.status.new")}
                known["happened"] = event.observed_ts_millis / 1000
                job = event.attributes.get("spark.job.id")
                file.write(json.dumps({**known, "job": job, "came": came, "answered": time.time()}) + "\n")
