"""Which modules are libraries, and which are the user's own: whatever nobody has installed."""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterable
from typing import Any

from spark_events.enrichment.worker.shipped import VENDORED

__all__ = ["found", "is_library"]

#: Libraries wherever they are: Spark has its own in folders and archives of its installation.
_NAMES = frozenset({"py4j", "pyspark", "spark_events", VENDORED})
#: Folders in which installers put libraries, in an environment that was packed and sent as well.
_INSTALLED = frozenset({"dist-packages", "site-packages"})
_PATHS = ("stdlib", "platstdlib", "purelib", "platlib")


def is_library(name: str, module: Any) -> bool:
    """Of a module that is there, or of the specification of one that would be found.

    The place counts, and not the name: what ``--py-files`` and ``addPyFile`` brought is somewhere else in every run,
    but never where libraries are. Compiled modules are taken for libraries: there is nothing to look into.
    """
    if isinstance(module, importlib.machinery.ModuleSpec):
        file = module.origin if module.has_location else None
        folders = module.submodule_search_locations
    else:
        file, folders = getattr(module, "__file__", None), getattr(module, "__path__", None)
    top = name.partition(".")[0]
    if top in _NAMES or name in sys.builtin_module_names:
        return True
    if file:
        return file.endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES)) or _is_installed([file])
    if folders:
        return _is_installed(folders)
    if top != name and top in sys.modules:
        return is_library(top, sys.modules[top])  # a library has made it
    return top in sys.stdlib_module_names


def found(name: str) -> importlib.machinery.ModuleSpec | None:
    """Where a module is. It is not imported, nor is its package: that may do anything, and is the executors' affair."""
    if name in sys.modules:
        return getattr(sys.modules[name], "__spec__", None)
    package = name.rpartition(".")[0]
    try:
        if not package:
            return importlib.util.find_spec(name)
        above = found(package)
        if above is None or above.submodule_search_locations is None:
            return None
        return importlib.machinery.PathFinder.find_spec(name, list(above.submodule_search_locations))
    except (ImportError, ValueError, OSError):
        return None


def _is_installed(places: Iterable[str]) -> bool:
    for place in places:
        # A link to it, or where the link leads.
        for path in map(os.path.normcase, {os.path.abspath(place), os.path.realpath(place)}):
            if path.startswith(_folders()) or not _INSTALLED.isdisjoint(path.split(os.sep)):
                return True
    return False


@functools.cache
def _folders() -> tuple[str, ...]:
    paths = [path for name in _PATHS if (path := sysconfig.get_path(name))]
    return tuple({os.path.normcase(path) + os.sep for path in [*paths, *map(os.path.realpath, paths)]})
