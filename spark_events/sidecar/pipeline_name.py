"""Name of the declarative pipeline that a Python process runs, read from the pipeline's specification.

``spark-pipelines run`` gives the name to neither Spark nor its listeners: it reads the file and keeps the name. The
application would be called ``pyspark-shell``.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

__all__ = ["UNNAMED", "pipeline_name"]

#: Names that Spark gives to an application without a name.
UNNAMED = ("pyspark-shell", "cli.py")
_PROC = Path("/proc")
_COMMAND = re.compile(r"[/\\]pyspark[/\\]pipelines[/\\]cli\.py$")
_FILES = ("spark-pipeline.yaml", "spark-pipeline.yml")
#: The first lines of a specification contain its name; a longer file is no specification.
_MOST_BYTES = 1 << 20
_NAME = re.compile(
    r"""^name\s*:\s+(?:"((?:[^"\\]|\\.)*)"|'((?:[^']|'')*)'|([^\s#"'&*!|>{\[%@`][^#\n]*?))\s*(?:#.*)?$""", re.MULTILINE
)


def pipeline_name(pid: int) -> str | None:
    """Return the name of the pipeline that a process runs; None if it runs none, or if the name cannot be read."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        command = (_PROC / str(pid) / "cmdline").read_bytes().decode().rstrip("\0").split("\0")
        program = next((place for place, part in enumerate(command) if _COMMAND.search(part)), None)
        if program is None:
            return None
        file = _specification(command[program + 1 :], _folder(pid))
        if file is not None and file.stat().st_size <= _MOST_BYTES:
            return _name_in(file.read_text(encoding="utf-8"))
    return None


def _folder(pid: int) -> Path:
    """Return the folder in which the command was started; it changes its folder while it reads the definitions."""
    for variable in (_PROC / str(pid) / "environ").read_bytes().split(b"\0"):
        if variable.startswith(b"PWD=/"):
            return Path(variable[4:].decode())
    return (_PROC / str(pid) / "cwd").resolve()


def _specification(arguments: list[str], folder: Path) -> Path | None:
    """Return the file that the arguments name, or else the nearest one in the folder and those above it."""
    for place, argument in enumerate(arguments):
        option, given, value = argument.partition("=")
        # The command accepts every beginning of the option's name.
        if len(option) > 2 and "--spec".startswith(option):
            return folder / (value if given else "".join(arguments[place + 1 : place + 2]))
    for parent in (folder, *folder.parents):
        found = [parent / name for name in _FILES if (parent / name).is_file()]
        if found:
            return found[0]
    return None


def _name_in(specification: str) -> str | None:
    """Return the value of the key ``name`` at the top of a specification, which is YAML.

    >>> _name_in('storage: file:///x\\nname: "daily"  # of sales')
    'daily'
    """
    found = _NAME.search(specification)
    if found is None:
        return None
    double, single, plain = found.groups()
    if plain is not None:
        return plain
    return single.replace("''", "'") if double is None else re.sub(r"\\(.)", r"\1", double)
