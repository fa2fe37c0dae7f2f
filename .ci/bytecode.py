"""Compile the packages that Spark's Python processes import, and the modules in the archives of PySpark and Py4J.

All other packages are compiled when the tests first import them. spark-submit puts the archives on the path of its
Python processes. Python does not cache the bytecode of modules in an archive, so each of the hundreds of Python
processes that the tests start would compile PySpark for about a second, and Py4J for a tenth of a second.
"""

import compileall
import importlib.util
import os
import py_compile
import re
import sys
import tempfile
import zipfile
from pathlib import Path

TESTS = re.compile("/tests/")
PACKAGES = ("aiohttp", "msgspec", "numpy", "pandas", "py4j", "pyarrow", "pyspark", "tenacity")


def compile_archive(archive: Path) -> None:
    """Add bytecode to a zip archive, unless it already contains bytecode."""
    with zipfile.ZipFile(archive) as original, tempfile.TemporaryDirectory() as scratch:
        if any(name.endswith(".pyc") for name in original.namelist()):
            return
        original.extractall(scratch)
        replacement = archive.with_suffix(".new")
        with zipfile.ZipFile(replacement, "w") as target:
            for source in sorted(path for path in Path(scratch).rglob("*") if path.is_file()):
                inside = source.relative_to(scratch)
                target.write(source, inside)
                if source.suffix == ".py" and not TESTS.search(str(source)):
                    # Python does not compare such bytecode with its source. The path is the one that tracebacks show.
                    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
                    bytecode = py_compile.compile(
                        str(source), f"{source}c", str(archive / inside), invalidation_mode=mode, quiet=2
                    )
                    if bytecode is not None:
                        target.write(bytecode, inside.with_suffix(".pyc"))
        os.replace(replacement, archive)


spec = importlib.util.find_spec("pyspark")
if spec is None or spec.origin is None:
    sys.exit("bytecode: no pyspark in this environment")
for package in PACKAGES:
    compileall.compile_dir(Path(spec.origin).parents[1] / package, quiet=2, rx=TESTS)
for archive in (Path(spec.origin).parent / "python" / "lib").glob("*.zip"):
    compile_archive(archive)
