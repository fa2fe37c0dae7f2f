"""Compile this environment's packages, and the modules in PySpark's archive.

The tests in the packages stay uncompiled. spark-submit puts the archive, pyspark.zip, on the path of its Python
processes. Python does not cache the bytecode of modules in an archive, so each of the hundreds of Python processes that
the tests start would compile PySpark for about a second.
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

spec = importlib.util.find_spec("pyspark")
if spec is None or spec.origin is None:
    sys.exit("bytecode: no pyspark in this environment")
packages = Path(spec.origin).parents[1]
compileall.compile_dir(packages, quiet=2, rx=re.compile("/tests/"))
archive = Path(spec.origin).parent / "python" / "lib" / "pyspark.zip"
with zipfile.ZipFile(archive) as original, tempfile.TemporaryDirectory() as scratch:
    if not any(name.endswith(".pyc") for name in original.namelist()):
        original.extractall(scratch)
        replacement = archive.with_suffix(".new")
        with zipfile.ZipFile(replacement, "w") as target:
            for source in sorted(path for path in Path(scratch).rglob("*") if path.is_file()):
                inside = source.relative_to(scratch)
                target.write(source, inside)
                if source.suffix == ".py":
                    # Python does not compare such bytecode with its source. The path is the one that tracebacks show.
                    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
                    bytecode = py_compile.compile(
                        str(source), f"{source}c", str(archive / inside), invalidation_mode=mode, quiet=2
                    )
                    if bytecode is not None:
                        target.write(bytecode, inside.with_suffix(".pyc"))
        os.replace(replacement, archive)
