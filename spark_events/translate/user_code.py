"""The user's own code in a stack trace, by what was submitted: main class, main script, Python files.

Everything else is a library: Spark, its plugins, what is installed for the interpreter, what a submitted zip carries
of installed packages. A location in a library would send the reader to code that is not his to change.
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
#: What a shell compiles of the lines that its user types.
_SHELL_LINE = re.compile(r"\$line\d+\.")
#: Packages of these names have many owners; the third part of a name is the owner's.
_SHARED = ("org.apache", "com.github", "io.github")
_LAUNCHERS = ("org.apache.spark.deploy.SparkSubmit", "org.apache.spark.deploy.yarn.ApplicationMaster")
_WORKER_LAUNCHER = "org.apache.spark.deploy.worker.DriverWrapper"
_CLASS = re.compile(r"[A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*)*")

_ARCHIVE = re.compile(r"(.+?\.(?:zip|egg|whl))[/\\](.+)", re.IGNORECASE)
# Spark's own Python, py4j and this package as they are shipped, what is installed, and the standard library. This
# package elsewhere is known by its folders: the user may have a folder of its name.
_LIBRARY = re.compile(
    r"[/\\](?:pyspark|py4j|pyspark\.zip|py4j-[\d.]+-src\.zip|spark_events-\d[^/\\]*\.zip)[/\\]"
    r"|(?:^|[/\\])[^/\\]*(?:site|dist)[-_]packages[^/\\]*[/\\]|[/\\]lib/python\d|^[A-Za-z]:\\.*\\Lib\\"
    r"|[/\\]python\d+\.zip[/\\]|^<frozen "
    r"|[/\\]spark_events[/\\](?:"
    r"(?:bridge|cli|config|dispatch|enrichment|event|jars|reporters|session|translate)[/\\]"
    r"|(?:__init__|_version|conversation|errors|loading|loops|pipeline|sidecar)\.py$)"
)


class UserCode:
    """Tells frames of the user's own code from frames of libraries.

    Args:
        command: how the driver's JVM was started, ``sun.java.command``.
        main_class: the class whose main method runs, where the driver saw it.
        py_files: ``spark.submit.pyFiles``.
        namespaces: the second words of the application's settings, ``databricks`` of ``spark.databricks.…``: a
            platform that starts Spark in a JVM of its own has settings of its own.
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
        """Whether the user wrote a class of the JVM: it is of the main class's organisation, or typed into a shell."""
        if _SHELL_LINE.match(name):
            return True
        return self._package is not None and (name.startswith(self._package) if self._package else "." not in name)

    def innermost(self, files: Sequence[str]) -> int | None:
        """Return the index of the innermost frame of a Python traceback that is the user's own.

        A zip that cannot be looked into may be the user's or may hold installed packages. It counts where the
        outermost frame is in it, for that is what Spark called.
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
        """The packages that were installed into a submitted zip; None where it cannot be read, or is a package."""
        path = self._archives.get(re.split(r"[/\\]", archive)[-1])
        return None if path is None or not path.endswith(".zip") else _installed(path)


@functools.lru_cache(maxsize=64)
def _installed(path: str) -> frozenset[str] | None:
    found: set[str] = set()
    with contextlib.suppress(OSError, zipfile.BadZipFile, UnicodeDecodeError, ValueError, RuntimeError):
        # Whatever else than a file stands there could be waited for without end.
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


def _main_class(words: list[str], namespaces: Collection[str]) -> str:
    if not words:
        return ""
    launcher = words[0]
    if launcher in _LAUNCHERS:
        return words[words.index("--class") + 1] if "--class" in words[:-1] else ""
    if launcher == _WORKER_LAUNCHER:
        # After the worker's address and the jar.
        return words[3] if len(words) > 3 else ""
    if not _CLASS.fullmatch(launcher):
        return ""
    parts = launcher.split(".")
    return "" if len(parts) > 2 and parts[1] in namespaces else launcher


def _package(main_class: str) -> str | None:
    """What the names of the user's classes begin with; empty for classes without a package, None where unknown."""
    if not main_class or main_class.startswith(_SPARK):
        return None
    parts = main_class.split(".")[:-1]
    if not parts:
        return ""
    shared = ".".join(parts[:2]) in _SHARED
    return ".".join(parts[: 3 if shared else 2]) + "."
