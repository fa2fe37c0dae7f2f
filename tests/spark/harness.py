"""Real Spark under test: starts spark-submit, watches it, and leaves nothing of it behind.

Every process of a run inherits an environment variable with the run's own value. That is how the
sidecar is found, and how whatever is left at the end is found, even after its parent is gone.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import psutil
from inherited import INHERITED
from spark.quick_java import quick_java_home

from spark_events.jars import jar_path

T = TypeVar("T")

JOBS = Path(__file__).parent / "jobs"
REPORTERS = Path(__file__).parent / "reporters"
MARK = "SPARK_EVENTS_TEST_RUN"
#: For one spark-submit, from its start to its end, on a machine that is busy and slow.
DEADLINE_SECONDS = 600
#: A driver is gone; its sidecar may take `events.shutdown.timeout`, ten seconds, and a moment more.
LEFTOVER_SECONDS = 30
_POLL_SECONDS = 0.02

# The C1 compiler alone and a simple collector: a short job is over sooner.
_JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
#: What makes any Spark small and quiet; nothing of it is ours.
SMALL_SPARK = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.driver.extraJavaOptions": _JVM_OPTIONS,
    "spark.executor.extraJavaOptions": _JVM_OPTIONS,
}
#: For those who assert that nothing is said: how slow the machine is, is no fault that anybody should be told of.
PATIENT = {
    "events.sidecar.start-timeout": "2min",
    "events.dispatcher.sync.timeout": "3min",
    "events.shutdown.timeout": "1min",
}


def pyspark_home() -> Path:
    """Where this interpreter's PySpark is; found without importing it."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None, "no pyspark in this environment"
    assert spec.origin is not None
    return Path(spec.origin).parent


def home_in(folder: Path) -> Path:
    """The same PySpark with a place of its own for what is written below it.

    A Worker does so, and names its folders by the second in which the application came: two beside each other would
    have the same.
    """
    home = folder / "spark-home"
    home.mkdir()
    for entry in pyspark_home().iterdir():
        if entry.name != "work":
            (home / entry.name).symlink_to(entry)
    return home


def spark_version() -> tuple[int, ...]:
    """Of this interpreter's PySpark, by the name of its core jar."""
    jar = next((pyspark_home() / "jars").glob("spark-core_*.jar"))
    return tuple(int(part) for part in re.findall(r"\d+", jar.stem.rpartition("-")[2]))


def two_lines(jar: Path | None = None) -> dict[str, str]:
    """What every user has in spark-defaults.conf."""
    return {
        "spark.extraListeners": "io.sparkevents.EventsListener",
        "spark.driver.extraClassPath": str(jar or jar_path()),
    }


def file_reporter(path: Path, dispatcher: str = "sync") -> dict[str, str]:
    """The lines for a ``file`` reporter named audit."""
    return {
        "events.dispatcher.type": dispatcher,
        "events.reporters": "audit",
        "events.reporter.audit.type": "file",
        "events.reporter.audit.path": str(path),
    }


def java_variables() -> dict[str, str]:
    """Lets Spark start quickly, where that can be."""
    home = quick_java_home(pyspark_home())
    return {} if home is None else {"JAVA_HOME": str(home)}


def environment(extra: Mapping[str, str | None] | None = None) -> dict[str, str]:
    """The caller's, without anything about Spark or Python that is not this interpreter's."""
    inherited = {k: v for k, v in INHERITED.items() if not re.match(r"SPARK_|PYSPARK_|PYTHON|HADOOP_", k)}
    values: dict[str, str | None] = {
        **inherited,
        **java_variables(),
        "SPARK_HOME": str(pyspark_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONDONTWRITEBYTECODE": "1",
        **(extra or {}),
    }
    return {key: value for key, value in values.items() if value is not None}


def wait_for(what: str, probe: Callable[[], T | None], seconds: float = 120) -> T:
    """The first result of ``probe`` that is true.

    Raises:
        TimeoutError: there was none in time; names ``what`` was waited for.
    """
    deadline = time.monotonic() + seconds
    while not (found := probe()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds} s for {what}")
        time.sleep(_POLL_SECONDS)
    return found


def _command_line(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def _is_sidecar(process: psutil.Process) -> bool:
    return "from spark_events.sidecar import main" in _command_line(process)


def _is_driver(process: psutil.Process) -> bool:
    return "org.apache.spark.deploy.SparkSubmit" in _command_line(process)


def _is_executor(process: psutil.Process) -> bool:
    return "org.apache.spark.executor.CoarseGrainedExecutorBackend" in _command_line(process)


@dataclass
class Run:
    """One started Spark. ``folder`` is its working directory; everything it writes is below."""

    folder: Path
    process: subprocess.Popen[bytes]
    mark: str
    killed_by_us: list[int] = field(default_factory=list)

    @property
    def events_path(self) -> Path:
        """Where :meth:`Lab.start` lets the ``file`` reporter write unless it is told otherwise."""
        return self.folder / "events.jsonl"

    @property
    def log(self) -> str:
        """The driver's log: its standard error."""
        return (self.folder / "stderr").read_text(encoding="utf-8", errors="replace")

    @property
    def output(self) -> str:
        """What the job printed."""
        return (self.folder / "stdout").read_text(encoding="utf-8", errors="replace")

    @property
    def own_messages(self) -> list[str]:
        """What spark-events itself has said in the driver's log, at WARN or above."""
        return [line for line in self.log.splitlines() if re.search(r" (WARN|ERROR) .*spark-events: ", line)]

    def events(self, path: Path | None = None) -> list[dict[str, Any]]:
        """The whole lines of the events file; each must be an event."""
        path = path or self.events_path
        if not path.exists():
            return []
        text = path.read_text(encoding="utf-8")
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def named(self, name: str, **attributes: object) -> list[dict[str, Any]]:
        """The events of a name; attributes are written with ``_`` for ``.``."""
        wanted = {key.replace("_", "."): value for key, value in attributes.items()}
        return [
            event
            for event in self.events()
            if event["name"] == name and all(event["attributes"].get(k) == v for k, v in wanted.items())
        ]

    def event_log(self) -> list[dict[str, Any]]:
        """The lines of Spark's own event log."""
        files = [path for path in self.folder.rglob("*local-*") if path.is_file()]
        (path,) = [path for path in files if path.suffix != ".crc" and not path.name.startswith("appstatus")]
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

    def truth(self, name: str = "truth") -> Any:
        """What the job itself has written down."""
        return json.loads((self.folder / f"{name}.json").read_text(encoding="utf-8"))

    def commits(self, checkpoint: str) -> list[int]:
        """The batches that Spark has committed, by the checkpoint."""
        return committed(self.folder / checkpoint)

    def tell(self, word: str) -> None:
        """Says a word to the job, which waits for it."""
        (self.folder / word).touch()

    def wait_until_said(self, word: str, seconds: float = DEADLINE_SECONDS) -> None:
        """Waits for a word of the job."""
        self.wait_for(f"the job to say {word!r}", (self.folder / word).exists, seconds)

    def wait_for(self, what: str, probe: Callable[[], T | None], seconds: float = DEADLINE_SECONDS) -> T:
        """Waits while the job runs; one that ends before is a failure."""

        def probe_while_running() -> T | None:
            found = probe()
            if not found and self.process.poll() is not None:
                raise AssertionError(f"the job ended before {what}:\n{self.tail()}")
            return found

        return wait_for(what, probe_while_running, seconds)

    def processes(self) -> list[psutil.Process]:
        """All that live and belong to this run."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def sidecars(self) -> list[int]:
        """The pids of the sidecars that live."""
        return [process.pid for process in self.processes() if _is_sidecar(process)]

    def executors(self) -> list[psutil.Process]:
        """The executors' JVMs that live."""
        return [process for process in self.processes() if _is_executor(process)]

    def sidecar(self) -> int:
        """Waits for the sidecar and returns its pid."""
        pid = self.wait_for("a sidecar", lambda: next(iter(self.sidecars()), None))
        return pid

    def next_sidecar(self, *known: int) -> int:
        """Waits for a sidecar that is none of the known ones."""
        return self.wait_for("another sidecar", lambda: next((p for p in self.sidecars() if p not in known), None))

    def driver(self) -> int:
        """The pid of the driver's JVM."""
        return int(psutil.Process(self.sidecar()).ppid())

    def signal(self, pid: int, number: signal.Signals) -> None:
        """To a process of this run only."""
        assert pid in [process.pid for process in self.processes()]
        os.kill(pid, number)

    def wait(self, seconds: float = DEADLINE_SECONDS) -> int:
        """Waits for the end of it all, and returns the exit code.

        Raises:
            AssertionError: it did not end in time, or its sidecar outlived it.
        """
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            tail = self.tail()
            self.end()
            raise AssertionError(f"the job did not end within {seconds} s:\n{tail}") from None
        try:
            # Where Python has started the JVM, it ends behind Python, and not before its sidecar.
            wait_for("the driver's JVM to be gone", lambda: not any(map(_is_driver, self.processes())), seconds)
            wait_for("the sidecar to be gone", lambda: not self.sidecars(), LEFTOVER_SECONDS)
        except TimeoutError as error:
            raise AssertionError(
                f"{error}; the job has ended, and sidecars {self.sidecars()} live:\n{self.tail()}"
            ) from None
        finally:
            self.end()
        return code

    def end(self) -> None:
        """Kills what is left of this run, process by process."""
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                process.kill()
        self.process.wait(60)

    def tail(self, characters: int = 4_000) -> str:
        """The end of the driver's log, for messages."""
        return f"{self.log[-characters:]}\n(all of it: {self.folder})"


@dataclass
class Lab:
    """Starts runs, two at a time at most, and knows them all."""

    folder: Path
    runs: list[Run] = field(default_factory=list)
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(2))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(
        self,
        job: str,
        *arguments: str,
        defaults: Mapping[str, str] | str | None = None,
        conf: Mapping[str, str] | None = None,
        env: Mapping[str, str | None] | None = None,
        program: Iterable[str] = ("spark-submit",),
        small: Mapping[str, str] | None = None,
    ) -> Run:
        """Starts a job and returns at once.

        Args:
            job: a script of ``jobs/``, which gets the run's folder as its first argument; or nothing,
                where ``program`` and ``arguments`` are all there is.
            arguments: what follows; ``{folder}`` stands for the run's folder, here as in the settings.
            defaults: spark-defaults.conf, besides what makes Spark small; a text is taken as it is.
            conf: given as ``--conf``.
            env: additions to the environment; None takes a variable away.
            program: of PySpark's ``bin/``, with its options; or a path.
            small: settings instead of :data:`SMALL_SPARK`.
        """
        with self._lock:
            folder = self.folder / f"{len(self.runs):02d}-{Path(job or 'sql').stem}"
            folder.mkdir(parents=True)
            conf_dir = folder / "conf"
            conf_dir.mkdir()
            if not isinstance(defaults, str):
                lines = {**(SMALL_SPARK if small is None else small), **(defaults or {})}
                defaults = "".join(f"{key}  {value}\n" for key, value in lines.items())
            (conf_dir / "spark-defaults.conf").write_text(defaults.replace("{folder}", str(folder)), encoding="utf-8")
            first, *options = program
            command = [shutil.which(first, path=str(pyspark_home() / "bin")) or first, *options]
            for key, value in (conf or {}).items():
                command += ["--conf", f"{key}={value.replace('{folder}', str(folder))}"]
            if job:
                command += [str(JOBS / job), str(folder)]
            command += [argument.replace("{folder}", str(folder)) for argument in arguments]
            mark = uuid.uuid4().hex
            own = {"SPARK_HOME": str(home_in(folder)), "SPARK_CONF_DIR": str(conf_dir), MARK: mark}
            # What a run leaves for the next one of its name must not reach the next test.
            own["XDG_STATE_HOME"] = str(folder / "state")
            variables = environment({**own, **(env or {})})
            with (folder / "stdout").open("wb") as stdout, (folder / "stderr").open("wb") as stderr:
                process = subprocess.Popen(
                    command,
                    cwd=folder,
                    env=variables,
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=stderr,
                    start_new_session=True,
                )
            run = Run(folder, process, mark)
            self.runs.append(run)
        return run

    def run(self, job: str, *arguments: str, **options: Any) -> Run:
        """Starts a job and waits for its end; the exit code is ``run.process.returncode``."""
        run = self.start(job, *arguments, **options)
        run.wait()
        return run

    def background(self, work: Callable[..., T], *arguments: Any, **options: Any) -> Future[T]:
        """Does it as soon as fewer than two others are at work."""
        return self._pool.submit(work, *arguments, **options)

    def close(self) -> None:
        """Ends everything, and says so where there was something that should have ended by itself."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        left = [(run.folder.name, pid) for run in self.runs for pid in run.sidecars()]
        for run in self.runs:
            run.end()
        self._pool.shutdown(wait=True)
        assert not left, f"sidecars were left behind: {left}"


def committed(checkpoint: Path) -> list[int]:
    """The batches in a checkpoint's ``commits/``, in order."""
    return sorted(int(entry.name) for entry in (checkpoint / "commits").glob("[0-9]*"))


def line_of(job: str, marker: str) -> int:
    """The number of the one line of a job that ends with the marker."""
    lines = (JOBS / job).read_text(encoding="utf-8").splitlines()
    (found,) = [number for number, line in enumerate(lines, 1) if line.endswith(marker)]
    return found
