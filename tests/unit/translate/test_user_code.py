"""Tests of the detection of the user's code in stack traces."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from spark_events.translate.user_code import UserCode

SUBMIT = "org.apache.spark.deploy.SparkSubmit --conf spark.master=local[2]"
YARN = "org.apache.spark.deploy.yarn.ApplicationMaster"
JOB = "/app/job.py"
LIBRARIES = [
    "/opt/venv/lib/python3.11/site-packages/requests/api.py",
    "/usr/lib/python3/dist-packages/requests/api.py",
    "/databricks/python/Lib_x/dist-packages/requests/api.py",
    "C:\\Python311\\Lib\\asyncio\\runners.py",
    "C:\\venv\\Lib\\site-packages\\requests\\api.py",
    "/tmp/userFiles-1/site-packages.zip/requests/api.py",
    "site_packages.zip/requests/api.py",
    "/tmp/userFiles-1/deps.zip/lib/python3.11/site-packages/requests/api.py",
    "<frozen importlib._bootstrap>",
    "<string>",
    "<attrs generated init __main__.Lookup>",
    "<__array_function__ internals>",
    "/opt/spark/python/lib/pyspark.zip/pyspark/worker.py",
    "/opt/spark/python/lib/py4j-0.10.9.9-src.zip/py4j/protocol.py",
]


@pytest.mark.parametrize(
    ("code", "own", "others"),
    [
        (UserCode(f"{SUBMIT} --class com.acme.jobs.Orders orders.jar 1"), ["com.acme.udf.Tax$"], ["com.nvidia.A"]),
        (UserCode(f"{YARN} --class com.acme.jobs.Orders --jar x.jar"), ["com.acme.A"], ["com.acmeother.A"]),
        (UserCode("org.apache.spark.deploy.worker.DriverWrapper spark://w x.jar com.acme.A 1"), ["com.acme.B"], ["B"]),
        (UserCode("com.acme.Orders 1"), ["com.acme.Orders$"], ["org.postgresql.Driver"]),
        (UserCode(f"{SUBMIT} orders.jar", main_class="com.acme.Orders"), ["com.acme.Orders"], ["com.nvidia.A"]),
        (UserCode(f"{SUBMIT} --class Orders orders.jar"), ["Orders$", "Tax"], ["com.nvidia.A"]),
        (UserCode(f"{SUBMIT} --class com.github.me.A a.jar"), ["com.github.me.B"], ["com.github.other.A"]),
        (UserCode(f"{SUBMIT} --class org.apache.spark.repl.Main"), ["$line14.$read$$iw"], ["org.apache.spark.A", "B"]),
        # The main class is unknown if only the jar's manifest names it, or if a platform started the JVM.
        (UserCode(f"{SUBMIT} orders.jar"), [], ["com.acme.A", "com.nvidia.A", "A"]),
        (UserCode("com.databricks.Daemon", namespaces=["databricks"]), ["$line1.$read"], ["com.databricks.A"]),
        (UserCode("/opt/app.jar --class com.acme.A"), [], ["com.acme.A"]),
        (UserCode(), [], ["com.acme.A", "A"]),
    ],
)
def test_classes_of_the_main_class_s_organization_are_user_code(
    code: UserCode, own: list[str], others: list[str]
) -> None:
    """Classes of the main class's organisation and of a shell are user code. All other classes are libraries."""
    assert [name for name in (*own, *others) if code.is_own_class(name)] == own


@pytest.mark.parametrize("file", LIBRARIES)
def test_installed_packages_are_libraries(file: str) -> None:
    """Files of installed packages are libraries, in any folder and any archive."""
    assert UserCode().innermost([JOB, file]) == 0
    assert UserCode().innermost([file]) is None


@pytest.mark.parametrize(
    "file", ["<stdin>", "<console>", "<ipython-input-3-0a1b>", "<python-input-0>", "<command-412/orders>"]
)
def test_cells_and_typed_lines_are_user_code(file: str) -> None:
    """A notebook's cell or a line typed into a shell is user code, although it has no file."""
    assert UserCode().innermost([JOB, file]) == 1


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Return a zip file with a pip-installed package and a user module."""
    path = tmp_path / "jobs.zip"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("requests-2.0.dist-info/RECORD", "requests/api.py,sha256=x,1\nrequests-2.0.dist-info/RECORD,,\n")
        made.writestr("requests/api.py", "")
        made.writestr("orders/tax.py", "")
    return path


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}", "/no/other.zip,{}"])
def test_a_submitted_zip_is_searched_for_installed_packages(archive: Path, form: str) -> None:
    """In a submitted zip, pip-installed packages are libraries, and all other files are user code."""
    code = UserCode(py_files=form.format(archive).split(","))
    files = [JOB, *(f"/tmp/userFiles-1/jobs.zip/{name}" for name in ("orders/tax.py", "requests/api.py"))]
    assert code.innermost(files) == 1
    assert code.innermost(files[2:]) is None


@pytest.mark.parametrize("py_files", [[], ["hdfs://n/jobs.zip"], ["/no/jobs.zip"], ["https://x/jobs.zip"]])
def test_an_unreadable_zip_is_user_code_if_spark_called_it(py_files: list[str]) -> None:
    """An unreadable zip is user code if it contains the outermost frame. Otherwise, its frames are not locations."""
    code = UserCode(py_files=py_files)
    own, other = "/tmp/u/jobs.zip/orders/tax.py", "/tmp/u/deps.zip/requests/api.py"
    assert code.innermost([own, own, other]) == 1
    assert code.innermost([JOB, own, other]) == 0


def test_an_unreadable_zip_causes_no_error(tmp_path: Path) -> None:
    """A folder or a damaged file with the name of a zip counts as an unreadable zip."""
    (tmp_path / "folder.zip").mkdir()
    (tmp_path / "damaged.zip").write_bytes(b"PK")
    code = UserCode(py_files=[str(path) for path in tmp_path.iterdir()])
    for name in ("folder.zip", "damaged.zip"):
        assert code.innermost([JOB, f"/tmp/u/{name}/orders.py"]) == 0
