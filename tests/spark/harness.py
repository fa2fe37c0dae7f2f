"""Start spark-submit for tests, observe the run, and end all of its processes.

Every process of a run inherits an environment variable with a unique value. The variable identifies the sidecar and all
remaining processes, even after their parent has exited.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest
from fakes import ROOT
from inherited import INHERITED
from spark.quick_java import JVM_OPTIONS, quick_java_home

from spark_events.jars import jar_path

T = TypeVar("T")

JOBS = Path(__file__).parent / "jobs"
REPORTERS = Path(__file__).parent / "reporters"
MARK = "SPARK_EVENTS_TEST_RUN"
#: Time limit of one spark-submit run, long enough for a busy or slow machine.
DEADLINE_SECONDS = 600
#: Line of the driver's log with a warning or an error of spark-events itself, and not an event of a `log` reporter.
_OWN_MESSAGE = re.compile(r" (WARN|ERROR) .*\[spark-events\] (?!\w+Event: )")
#: Time limit for the sidecar's exit after its driver's exit: `events.shutdown.timeout` (10 s) and a margin.
LEFTOVER_SECONDS = 30
#: First and longest interval between two probes; most probes read the environment of all processes.
_POLL_SECONDS = (0.02, 0.1)


def pyspark_home() -> Path:
    """Return the folder of this interpreter's PySpark without importing it."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None, "no pyspark in this environment"
    assert spec.origin is not None
    return Path(spec.origin).parent


def spark_version() -> tuple[int, ...]:
    """Return the version of this interpreter's PySpark; without PySpark, ``(0,)``."""
    try:
        version = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        return (0,)
    return tuple(int(part) for part in re.findall(r"\d+", version))


def jars_for(name: str) -> Path:
    """Return the folder of a library's jars for this Spark, which ``make`` downloads into ``.tools``."""
    version = ".".join(map(str, spark_version()[:2]))
    return ROOT / ".tools" / f"{name}{f'-{version}' if version in ('3.5', '4.0') else ''}" / "jars"


_STREAMING = "org.apache.spark.sql.execution.streaming"
#: Settings for a small Spark with few log lines, without spark-events settings.
SMALL_SPARK = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    # By default, an idle streaming query polls for new data every 10 ms, which uses a fifth of a processor.
    "spark.sql.streaming.pollingDelay": "100ms",
    # Spark's default manager makes Hadoop run `readlink` 24 times per micro-batch. That takes longer than the batch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        f"{_STREAMING}{'.checkpointing' if spark_version() >= (4, 1) else ''}.FileSystemBasedCheckpointFileManager"
    ),
    "spark.driver.extraJavaOptions": JVM_OPTIONS,
    "spark.executor.extraJavaOptions": JVM_OPTIONS,
}
#: Settings that run spark-sql without Hive's catalog. Starting that catalog takes as long as a whole job.
IN_MEMORY = {"spark.sql.catalogImplementation": "in-memory"}
#: Longer timeouts for tests that expect no warnings: on a slow machine, the default timeouts could cause warnings.
PATIENT = {
    "events.sidecar.start-timeout": "2min",
    "events.dispatcher.sync.timeout": "3min",
    "events.shutdown.timeout": "1min",
}
#: Settings of an event log as one readable file in the application's folder.
PLAIN_EVENT_LOG = {
    "spark.eventLog.enabled": "true",
    "spark.eventLog.dir": "{folder}",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
}
#: Settings of a local cluster with two executors, which both run before the first job.
TWO_EXECUTORS = {
    "spark.master": "local-cluster[2,1,1024]",
    "spark.executor.memory": "1g",
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1",
}


def home_in(folder: Path) -> Path:
    """Return a folder with links to this PySpark, in which a Spark Worker can create files.

    A Worker names a folder after the application's start time in seconds, so two workers in one folder could use the
    same name.
    """
    home = folder / "spark-home"
    home.mkdir()
    for entry in pyspark_home().iterdir():
        if entry.name != "work":
            (home / entry.name).symlink_to(entry)
    return home


def runs_any_spark(request: pytest.FixtureRequest) -> bool:
    """Return whether the selected tests of this file include tests that the matrix skips (``any_spark``)."""
    items = (item for item in request.session.items if item.path == request.path)
    return any(item.get_closest_marker("any_spark") for item in items)


def two_lines(jar: Path | None = None) -> dict[str, str]:
    """Return the two lines that every user adds to spark-defaults.conf."""
    return {
        "spark.extraListeners": "io.sparkevents.EventsListener",
        "spark.driver.extraClassPath": str(jar or jar_path()),
    }


def file_reporter(path: Path, dispatcher: str = "sync") -> dict[str, str]:
    """Return the settings for a ``file`` reporter named audit."""
    return {
        "events.dispatcher.type": dispatcher,
        "events.reporters": "audit",
        "events.reporter.audit.type": "file",
        "events.reporter.audit.path": str(path),
    }


def parts(applications: Mapping[str, Mapping[str, str]]) -> str:
    """Return the argument of a job that runs several applications: the settings of each, as JSON.

    In the settings, ``{folder}`` stands for the application's folder. A SparkConf can contain only keys that begin with
    ``spark.``.
    """
    return json.dumps(
        {
            name: {
                key if key.startswith("spark.") else f"spark.{key}": value.replace("{folder}", f"{{folder}}/{name}")
                for key, value in settings.items()
            }
            for name, settings in applications.items()
        }
    )


def java_variables() -> dict[str, str]:
    """Return the environment variables that speed up Spark's startup, or none if there is no archive."""
    home = quick_java_home(pyspark_home())
    return {} if home is None else {"JAVA_HOME": str(home)}


def environment(extra: Mapping[str, str | None] | None = None) -> dict[str, str]:
    """Return the inherited environment, with Spark and Python variables replaced for this interpreter."""
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
    """Return the first true result of ``probe``.

    Raises:
        TimeoutError: if no result is true in time; the error message contains ``what``.
    """
    deadline = time.monotonic() + seconds
    pause, longest = _POLL_SECONDS
    while not (found := probe()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds} s for {what}")
        time.sleep(pause)
        pause = min(longest, 1.5 * pause)
    return found


def _command_line(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def _is_sidecar(process: psutil.Process) -> bool:
    return "from spark_events.sidecar.main import main" in _command_line(process)


def _is_driver(process: psutil.Process) -> bool:
    return "org.apache.spark.deploy.SparkSubmit" in _command_line(process)


def _is_executor(process: psutil.Process) -> bool:
    return "org.apache.spark.executor.CoarseGrainedExecutorBackend" in _command_line(process)


@dataclass
class Run:
    """Run of spark-submit, whose working directory ``folder`` contains all files that the run writes."""

    folder: Path
    process: subprocess.Popen[bytes]
    mark: str
    killed_by_us: list[int] = field(default_factory=list)
    is_part: bool = False

    def part(self, application: str) -> Run:
        """Return one of several applications of this run, which the job began with ``control.begin``.

        The log of an application that did not begin is that of the whole job.

        The folder and the log of the returned run are those of the application. If spark-events holds the application's
        end until the next application begins, messages about the end are in the log of the next application.
        """
        return replace(self, folder=self.folder / application, is_part=True)

    @property
    def events_path(self) -> Path:
        """Return the default path of the ``file`` reporter that :meth:`Lab.start` configures."""
        return self.folder / "events.jsonl"

    @property
    def log(self) -> str:
        """Return the driver's log (its standard error)."""
        if not self.is_part:
            return (self.folder / "stderr").read_text(encoding="utf-8", errors="replace")
        job = self.folder.parent
        file = job / "log_parts.json"
        parts = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        if self.folder.name not in parts:
            return (job / "stderr").read_text(encoding="utf-8", errors="replace")
        begin, *later = [parts[name] for name in list(parts)[list(parts).index(self.folder.name) :]]
        end = later[0] if later else None
        return (job / "stderr").read_bytes()[begin:end].decode("utf-8", errors="replace")

    @property
    def output(self) -> str:
        """Return the job's standard output."""
        return (self.folder / "stdout").read_text(encoding="utf-8", errors="replace")

    @property
    def own_messages(self) -> list[str]:
        """Return the messages that spark-events has written to the driver's log at WARN or above."""
        return [line for line in self.log.splitlines() if _OWN_MESSAGE.search(line)]

    def events(self, path: Path | None = None) -> list[dict[str, Any]]:
        """Return the events in the complete lines of the file; fail if a line is not JSON."""
        path = path or self.events_path
        if not path.exists():
            return []
        text = path.read_text(encoding="utf-8")
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def named(self, name: str, **attributes: object) -> list[dict[str, Any]]:
        """Return the events with this name and these attributes. In a keyword, ``_`` replaces ``.``."""
        wanted = {key.replace("_", "."): value for key, value in attributes.items()}
        return [
            event
            for event in self.events()
            if event["name"] == name and all(event["attributes"].get(k) == v for k, v in wanted.items())
        ]

    def event_log(self) -> list[dict[str, Any]]:
        """Return the lines of Spark's event log."""
        files = [path for path in self.folder.rglob("*local-*") if path.is_file()]
        (path,) = [path for path in files if path.suffix != ".crc" and not path.name.startswith("appstatus")]
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

    def truth(self, name: str = "truth") -> Any:
        """Return the data about the run that the job has read from Spark and written to a file."""
        return json.loads((self.folder / f"{name}.json").read_text(encoding="utf-8"))

    def commits(self, checkpoint: str) -> list[int]:
        """Return the batches that Spark committed, as recorded in the checkpoint."""
        return committed(self.folder / checkpoint)

    def command(self, word: str) -> None:
        """Signal the job by creating the file that it waits for."""
        (self.folder / word).touch()

    def wait_until_announced(self, word: str, seconds: float = DEADLINE_SECONDS) -> None:
        """Wait until the job creates this file."""
        self.wait_for(f"the job to say {word!r}", (self.folder / word).exists, seconds)

    def wait_for(self, what: str, probe: Callable[[], T | None], seconds: float = DEADLINE_SECONDS) -> T:
        """Wait for the first true result of ``probe``, and fail if the job ends first."""

        def probe_while_running() -> T | None:
            found = probe()
            if not found and self.process.poll() is not None:
                raise AssertionError(f"the job ended before {what}:\n{self.tail()}")
            return found

        return wait_for(what, probe_while_running, seconds)

    def processes(self) -> list[psutil.Process]:
        """Return all running processes of this run."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def sidecars(self) -> list[int]:
        """Return the process ids of the running sidecars."""
        return [process.pid for process in self.processes() if _is_sidecar(process)]

    def executors(self) -> list[psutil.Process]:
        """Return the JVMs of the running executors."""
        return [process for process in self.processes() if _is_executor(process)]

    def sidecar(self) -> int:
        """Wait for the sidecar and return its process id."""
        pid = self.wait_for("a sidecar", lambda: next(iter(self.sidecars()), None))
        return pid

    def next_sidecar(self, *known: int) -> int:
        """Wait for a sidecar whose process id is not in ``known``, and return its process id."""
        return self.wait_for("another sidecar", lambda: next((p for p in self.sidecars() if p not in known), None))

    def driver(self) -> int:
        """Return the process id of the driver's JVM."""
        return int(psutil.Process(self.sidecar()).ppid())

    def signal(self, pid: int, number: signal.Signals) -> None:
        """Send a signal to a process of this run."""
        assert pid in [process.pid for process in self.processes()]
        os.kill(pid, number)

    def wait(self, seconds: float = DEADLINE_SECONDS) -> int:
        """Wait until the run exits, and return the exit code.

        Raises:
            AssertionError: if the run does not exit in time, or if its sidecar continues to run.
        """
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            tail = self.tail()
            self.end()
            raise AssertionError(f"the job did not end within {seconds} s:\n{tail}") from None
        try:
            # If Python started the JVM, Python exits first, then the JVM, then the sidecar.
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
        """Kill the remaining processes of this run one by one."""
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                process.kill()
        self.process.wait(60)

    def tail(self, characters: int = 4_000) -> str:
        """Return the last part of the driver's log, for failure messages."""
        return f"{self.log[-characters:]}\n(all of it: {self.folder})"


@dataclass
class Lab:
    """Launcher of runs, at most two at a time, which ends all its runs when it is closed."""

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
        """Start a job and return immediately.

        Args:
            job: script of ``jobs/``, which receives the run's folder as its first argument; empty if ``program`` and
                ``arguments`` are the whole command.
            arguments: further arguments; ``{folder}`` stands for the run's folder, as in the settings.
            defaults: spark-defaults.conf in addition to the small Spark's settings; a string is used unchanged.
            conf: settings for ``--conf``.
            env: additions to the environment; None removes a variable.
            program: program of PySpark's ``bin/`` with its options, or a path.
            small: settings that replace :data:`SMALL_SPARK`.
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
            # Each run has its own spool folder, so that undelivered events of one run do not reach a run with the same
            # name.
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
        """Start a job and wait until it exits. The exit code is ``run.process.returncode``."""
        run = self.start(job, *arguments, **options)
        run.wait()
        return run

    def background(self, work: Callable[..., T], *arguments: Any, **options: Any) -> Future[T]:
        """Run a function in the background, at most two at a time."""
        return self._pool.submit(work, *arguments, **options)

    def close(self) -> None:
        """Kill all processes, and fail if a process should already have exited."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        left = [(run.folder.name, pid) for run in self.runs for pid in run.sidecars()]
        for run in self.runs:
            run.end()
        self._pool.shutdown(wait=True)
        assert not left, f"sidecars were left behind: {left}"


def committed(checkpoint: Path) -> list[int]:
    """Return the batches in a checkpoint's ``commits/``, in order."""
    return sorted(int(entry.name) for entry in (checkpoint / "commits").glob("[0-9]*"))


def line_of(job: str, marker: str) -> int:
    """Return the number of the line in a job's script that ends with the marker."""
    lines = (JOBS / job).read_text(encoding="utf-8").splitlines()
    (found,) = [number for number, line in enumerate(lines, 1) if line.endswith(marker)]
    return found


def replay(run: Run, log: Path, *options: str, settings: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run ``spark-events replay`` for an event log of a run."""
    conf = run.folder / "replay.conf"
    conf.write_text("".join(f"{key} {value}\n" for key, value in settings.items()), encoding="utf-8")
    program = "import sys; from spark_events.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "replay", str(log), "--conf", str(conf), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
