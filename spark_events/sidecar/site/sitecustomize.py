"""Imported by each Python that a command of ``spark-events run`` starts, because PYTHONPATH begins with this folder.

It records the exception that ends the program, restores PYTHONPATH, and runs the ``sitecustomize`` that it hides.
"""

import importlib.util
import os
import sys
from importlib.machinery import PathFinder
from typing import Any

_FOLDER = os.path.dirname(os.path.abspath(__file__))


def _load(spec: Any) -> Any:
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


sys.path[:] = [path for path in sys.path if path != _FOLDER]
_paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path != _FOLDER]
if any(_paths):
    os.environ["PYTHONPATH"] = os.pathsep.join(_paths)
else:
    os.environ.pop("PYTHONPATH", None)

_file = os.path.join(os.path.dirname(_FOLDER), "python_exceptions.py")
_load(importlib.util.spec_from_file_location("_spark_events_exceptions", _file)).record_uncaught()

_hidden = PathFinder.find_spec("sitecustomize", sys.path)
if _hidden is not None:
    _load(_hidden)
