"""Tests of examples/platforms and examples/kubernetes: scripts in an empty root, manifests against API schemas."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import tenacity
import yaml

import spark_events
from release import maven

pytestmark = pytest.mark.no_cover
PLATFORMS = maven.ROOT / "examples" / "platforms"
KUBERNETES = maven.ROOT / "examples" / "kubernetes"
SCRIPTS = sorted(PLATFORMS.glob("*.sh"))
LISTENER = "io.sparkevents.EventsListener"
WHEEL = f"spark_events-{spark_events.__version__}-py3-none-any.whl"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=maven.ROOT, check=True, capture_output=True)
    return folder / WHEEL


class Root:
    """Empty root directory with its own PATH, in which fake programs of the platform copy files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.prefix = folder / "opt" / "spark-events"
        self.calls = folder / "calls"
        self.bin = folder / "bin"
        self.bin.mkdir(parents=True)
        for program in ("bash", "cat", "cp", "env", "mktemp", "rm", "sed", "tail"):
            found = shutil.which(program)
            assert found is not None
            (self.bin / program).symlink_to(found)
        self.packages = folder / "packages"
        self.packages.mkdir()
        for package in (msgspec, tenacity):
            assert package.__file__ is not None
            (self.packages / package.__name__).symlink_to(Path(package.__file__).parent)
        self.program("sudo", 'exec "$@"')
        # Only `aws s3 cp --quiet FROM TO` and `gcloud storage cp FROM TO` copy files. All other commands are only
        # recorded.
        self.program(
            "aws", f'if [[ $1 == s3 ]]; then cp "${{4#s3:/}}" "${{5#s3:/}}"; else echo "${{@: -1}}" >{self.calls}; fi'
        )
        self.program("gcloud", 'cp "${3#gs:/}" "$4"')

    def program(self, name: str, text: str) -> Path:
        path = self.bin / name
        path.write_text(f"#!{shutil.which('bash')}\n{text}\n")
        path.chmod(0o755)
        return path

    def run(self, script: str, *arguments: str | Path, **variables: str | Path) -> str:
        own = {
            "PATH": str(self.bin),
            "PYTHON": sys.executable,
            "PREFIX": str(self.prefix),
            "TMPDIR": str(self.folder),
            # Install the wheel without dependencies, so that pip downloads nothing.
            "PIP_NO_DEPS": "1",
            "PYTHONPATH": str(self.packages),
            **{key: str(value) for key, value in variables.items()},
        }
        command = ["bash", str(PLATFORMS / script), *map(str, arguments)]
        done = subprocess.run(command, env=own, cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def root(tmp_path: Path) -> Root:
    """Return an empty root directory for one script."""
    return Root(tmp_path / "root")


def properties(text: str) -> dict[str, str]:
    return dict(line.split(None, 1) for line in text.splitlines() if line.strip())


def test_scripts_pass_shellcheck() -> None:
    shellcheck = Path(sys.executable).with_name("shellcheck")
    done = subprocess.run([shellcheck, *SCRIPTS], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    assert len(SCRIPTS) == 6


def test_install_and_enable(root: Root, wheel: Path) -> None:
    """The scripts install the package, copy the jar to a stable path, and keep other listeners and jars."""
    printed = properties(root.run("install.sh", wheel))
    jar = str(root.prefix / "spark-events-shim.jar")
    python = str(root.prefix / "bin" / "python")
    assert printed == {
        "spark.extraListeners": LISTENER,
        "spark.driver.extraClassPath": jar,
        "spark.events.python": python,
    }
    assert Path(jar).is_file()
    defaults = root.folder / "spark-defaults.conf"
    defaults.write_text(
        "spark.driver.extraClassPath=/usr/lib/a/*:/usr/lib/b.jar\nspark.extraListeners   com.example.Other"
    )
    for _ in range(2):
        root.run("enable.sh", SPARK_DEFAULTS=defaults)
    lines = defaults.read_text().splitlines()
    assert properties("\n".join(lines[2:])) == {
        "spark.extraListeners": f"com.example.Other,{LISTENER}",
        "spark.driver.extraClassPath": f"/usr/lib/a/*:/usr/lib/b.jar:{jar}",
        "spark.events.python": python,
    }
    assert len(lines) == 5, "the second call changes nothing"


def test_emr_bootstrap(root: Root, wheel: Path) -> None:
    """EMR's bootstrap script installs the wheel from S3. The extras are optional."""
    root.run("emr-bootstrap.sh", f"s3:/{wheel}")
    assert (root.prefix / "bin" / "spark-events").exists()
    assert not list(root.folder.glob("tmp.*"))


def test_dataproc_initialization(root: Root, wheel: Path) -> None:
    """Dataproc's script reads the wheel's URL from the cluster's metadata, and the extras are optional."""
    metadata = root.program("metadata", f'[[ $1 == attributes/spark-events-wheel ]] && echo "gs:/{wheel}"')
    root.run("dataproc-init.sh", METADATA=metadata)
    assert (root.prefix / "bin" / "spark-events").exists()


def test_databricks_init_script(root: Root, wheel: Path) -> None:
    """The Databricks script keeps Databricks' own listener."""
    databricks = root.folder / "databricks"
    (databricks / "driver" / "conf").mkdir(parents=True)
    subprocess.run([sys.executable, "-m", "venv", databricks / "python"], check=True)
    root.run("databricks-init.sh", WHEEL=wheel, DATABRICKS_ROOT=databricks)
    assert (databricks / "jars" / "spark-events-shim.jar").is_file()
    text = (databricks / "driver" / "conf" / "00-spark-events.conf").read_text()
    found = dict(re.findall(r'"(\S+)" = "(\S+)"', text))
    assert found["spark.extraListeners"] == f"com.databricks.backend.daemon.driver.DBCEventLoggingListener,{LISTENER}"
    assert Path(found["spark.events.python"]).exists()


def test_glue_job(root: Root, wheel: Path) -> None:
    """The Glue script uploads the job script, wheel and jar, and passes the job's arguments as JSON."""
    bucket = root.folder / "bucket"
    bucket.mkdir()
    script = root.folder / "job.py"
    script.touch()
    root.program("spark-events", f"echo {spark_events.jar_path()}")
    root.run("glue-job.sh", "orders", "role", f"s3:/{bucket}/", script, wheel)
    assert {path.name for path in bucket.iterdir()} == {"job.py", WHEEL, "spark-events-shim.jar"}
    arguments = json.loads(root.calls.read_text())
    assert arguments["--additional-python-modules"] == f"s3:/{bucket}/{WHEEL}"
    assert arguments["--extra-jars"].endswith("/spark-events-shim.jar")


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((KUBERNETES / name).read_text()))


@pytest.mark.parametrize("version", ["1.28", "latest"])
@pytest.mark.parametrize("name", ["rbac.yaml", "watch-cronjob.yaml"])
def test_manifests_are_valid(name: str, version: str) -> None:
    """The manifests are valid against the API schemas, which reject unknown fields."""
    import kubernetes_validate  # takes seconds, so collection does not import it

    if version == "latest":
        version = kubernetes_validate.latest_version()
    for document in documents(name):
        kubernetes_validate.validate(document, version, strict=True)
        with pytest.raises(kubernetes_validate.ValidationError, match="unknownField"):
            kubernetes_validate.validate({**document, "unknownField": 1}, version, strict=True)


def test_kubernetes_fields_of_the_spark_application_are_valid() -> None:
    """The fields that the operator copies into the driver's pod are valid in a pod, and each mount has a volume."""
    import kubernetes_validate  # takes seconds, so collection does not import it

    (application,) = documents("spark-application.yaml")
    spec, driver = application["spec"], application["spec"]["driver"]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": application["metadata"],
        "spec": {
            "serviceAccountName": driver["serviceAccount"],
            "securityContext": driver["podSecurityContext"],
            "terminationGracePeriodSeconds": driver["terminationGracePeriodSeconds"],
            "volumes": spec["volumes"],
            "containers": [
                {
                    "name": "driver",
                    "image": spec["image"],
                    **{key: driver[key] for key in ("env", "volumeMounts", "securityContext")},
                }
            ],
        },
    }
    kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)
    mounts = {mount["name"] for part in (driver, spec["executor"]) for mount in part["volumeMounts"]}
    assert mounts == {volume["name"] for volume in spec["volumes"]}


def test_settings_of_the_examples_are_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`spark-events check` accepts the settings of the SparkApplication, whose paths exist only in the image."""
    from spark_events.cli.arguments import Configuration
    from spark_events.dispatch.pipeline_plan import read

    monkeypatch.setenv("EVENTS_PASSWORD", "secret")
    (application,) = documents("spark-application.yaml")
    settings = application["spec"]["sparkConf"]
    given = Configuration("spark-application.yaml", {}, {key.removeprefix("spark."): v for key, v in settings.items()})
    assert read(given.settings()).disabled == {}


def test_files_name_the_current_version() -> None:
    """Documentation and examples contain the name of this version's wheel."""
    files = subprocess.run(
        [
            "git",
            "grep",
            "-lE",
            r"spark_events-[0-9.]+-py3|spark-events:[0-9]+\.[0-9]+",
            "--",
            "*.md",
            "examples",
            "docs",
        ],
        cwd=maven.ROOT,
        env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split()
    for name in files:
        text = (maven.ROOT / name).read_text()
        found = re.findall(r"spark_events-([0-9.]+)-py3|spark-events:([0-9]+\.[0-9.]*[0-9])", text)
        assert {first or second for first, second in found} == {spark_events.__version__}, name
