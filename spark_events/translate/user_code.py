"""Detect the user's code in stack traces, by main class, main script and Python files.

All other code is a library: Spark, its plugins, packages installed for the interpreter, and packages in a submitted
zip. A location in a library would point readers to code that they cannot change.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import stat
import zipfile
from collections.abc import Collection, Sequence
from urllib.parse import unquote, urlsplit

__all__ = ["UserCode"]

_SPARK = "org.apache.spark."
#: Classes that a shell generates from typed lines.
_SHELL_LINE = re.compile(r"\$line\d+\.")
#: Package prefixes that many organisations share; in such names, the third part identifies the organisation.
_SHARED = ("org.apache", "com.github", "io.github")
_LAUNCHERS = ("org.apache.spark.deploy.SparkSubmit", "org.apache.spark.deploy.yarn.ApplicationMaster")
_WORKER_LAUNCHER = "org.apache.spark.deploy.worker.DriverWrapper"
_CLASS = re.compile(r"[A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*)*")

_ARCHIVE = re.compile(r"(.+?\.(?:zip|egg|whl))[/\\](.+)", re.IGNORECASE)
# Spark's Python code, py4j, installed packages, the standard library, and this package in its usual places. Elsewhere,
# this package is recognised by its subfolders, because a user may have a folder of the same name.
_LIBRARY = re.compile(
    r"[/\\](?:pyspark|py4j|pyspark\.zip|py4j-[\d.]+-src\.zip|spark_events-\d[^/\\]*\.zip)[/\\]"
    r"|(?:^|[/\\])[^/\\]{0,255}(?:site|dist)[-_]packages[^/\\]{0,255}[/\\]|[/\\]lib/python\d|^[A-Za-z]:\\.*\\Lib\\"
    r"|[/\\]python\d+\.zip[/\\]"
    # Generated code, such as a dataclass's __init__, and frozen modules; not a notebook's cell or a line of a REPL.
    r"|^<(?!stdin\b|console>|input>|[a-z]*python-input-|command-)"
    r"|[/\\]spark_events[/\\](?:"
    r"(?:cli|config|dispatch|enrichment|event|failures|fleet|follow|jars|records|report|reporters|sidecar|sql|stream|translate|watch)[/\\]"
    r"|(?:__init__|_version|clocks|errors|loops)\.py$)"
)


class UserCode:
    """Distinguishes frames of the user's own code from frames of libraries.

    Args:
        command: the command line of the driver's JVM, ``sun.java.command``.
        main_class: the class whose main method runs; None if the driver did not find it.
        py_files: ``spark.submit.pyFiles``.
        namespaces: second parts of the application's setting keys, such as ``databricks`` in ``spark.databricks.…``. A
            platform that starts Spark in its own JVM has such settings.
    """

    def __init__(
        self,
        command: str = "",
        main_class: str = "",
        py_files: Sequence[str] = (),
        namespaces: Collection[str] = (),
    ) -> None:
        main_class = main_class or _main_class(command.split(), namespaces)
        self._package = _package(main_class)
        self._archives = {os.path.basename(path): path for path in map(_local, py_files) if path}

    def is_own_class(self, name: str) -> bool:
        """Return whether a JVM class is user code: in the main class's organisation, or typed into a shell."""
        if _SHELL_LINE.match(name):
            return True
        return self._package is not None and (name.startswith(self._package) if self._package else "." not in name)

    def innermost(self, files: Sequence[str]) -> int | None:
        """Return the index of the innermost frame of a Python traceback in the user's own code.

        An unreadable zip may contain the user's code or installed packages. Such a zip counts as user code if it
        contains the outermost frame, because Spark calls the user's code first.
        """
        own: list[int] = []
        unknown: list[int] = []
        for index, file in enumerate(files):
            if _LIBRARY.search(file):
                continue
            archive = _ARCHIVE.match(file)
            packages = frozenset() if archive is None else self._installed_in(archive[1])
            if packages is None:
                unknown.append(index)
            elif archive is None or re.split(r"[/\\]", archive[2])[0] not in packages:
                own.append(index)
        if own:
            return own[-1]
        outermost = _ARCHIVE.match(files[unknown[0]]) if unknown else None
        inside = [index for index in unknown if outermost and files[index].startswith(outermost[1])]
        return inside[-1] if inside else None

    def _installed_in(self, archive: str) -> frozenset[str] | None:
        """Return the packages installed in a submitted zip.

        The result is None if the archive is unreadable, or is itself a package (an egg or a wheel).
        """
        path = self._archives.get(re.split(r"[/\\]", archive)[-1])
        return None if path is None or not path.endswith(".zip") else _installed(path)


@functools.lru_cache(maxsize=64)
def _installed(path: str) -> frozenset[str] | None:
    found: set[str] = set()
    with contextlib.suppress(OSError, zipfile.BadZipFile, UnicodeDecodeError, ValueError, RuntimeError):
        # Open only a regular file; opening a pipe, for example, could block forever.
        if not stat.S_ISREG(os.stat(path).st_mode):
            return None
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name.endswith(".dist-info/RECORD"):
                    lines = archive.read(name).decode().splitlines()
                    found.update(line.partition(",")[0].partition("/")[0] for line in lines)
        return frozenset(found)
    return None


def _local(path: str) -> str | None:
    url = urlsplit(path)
    if url.scheme not in ("", "file", "local"):
        return None
    return unquote(url.path) if url.scheme else path


def _main_class(arguments: list[str], namespaces: Collection[str]) -> str:
    if not arguments:
        return ""
    launcher = arguments[0]
    if launcher in _LAUNCHERS:
        return arguments[arguments.index("--class") + 1] if "--class" in arguments[:-1] else ""
    if launcher == _WORKER_LAUNCHER:
        # In the worker's command line, the class follows the worker's address and the jar.
        return arguments[3] if len(arguments) > 3 else ""
    if not _CLASS.fullmatch(launcher):
        return ""
    parts = launcher.split(".")
    return "" if len(parts) > 2 and parts[1] in namespaces else launcher


def _package(main_class: str) -> str | None:
    """Return the common package prefix of the user's classes.

    The result is "" for classes without a package, and None if the classes are unknown.
    """
    if not main_class or main_class.startswith(_SPARK):
        return None
    parts = main_class.split(".")[:-1]
    if not parts:
        return ""
    shared = ".".join(parts[:2]) in _SHARED
    return ".".join(parts[: 3 if shared else 2]) + "."
