"""A real standalone cluster, whose workers can be on several hosts of the loopback network."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from ports import free_port
from spark.harness import environment, home_in, wait_for


@dataclass
class Cluster:
    """Standalone master with workers."""

    folder: Path
    port: int = field(default_factory=free_port)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.home = home_in(self.folder)
        self.variables = environment({"SPARK_HOME": str(self.home)})
        self._daemon("master.Master", "--host", "127.0.0.1", "--port", str(self.port), "--webui-port", "0")
        log = self.folder / "master.Master.log"
        wait_for("the master", lambda: f"port {self.port}" in log.read_text(errors="replace"))

    @property
    def master(self) -> str:
        """Return the URL for ``--master``."""
        return f"spark://127.0.0.1:{self.port}"

    def worker(self) -> subprocess.Popen[bytes]:
        """Return the only running worker of this master. Start a worker if none is running."""
        _, *workers = self.processes
        running = [worker for worker in workers if worker.poll() is None]
        return running[0] if running else self.start_worker()

    def start_worker(self, *options: str) -> subprocess.Popen[bytes]:
        """Start a worker with two cores."""
        return self._daemon("worker.Worker", "--webui-port", "0", "--cores", "2", *options, self.master)

    def close(self) -> None:
        """Kill all processes of the cluster."""
        for process in self.processes:
            process.kill()
            process.wait()

    def _daemon(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        command: list[str | Path] = [self.home / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *arguments]
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(command, env=self.variables, stdout=log, stderr=log, cwd=self.folder)
        self.processes.append(process)
        return process
