"""Libraries that only some reporters need: imported when one is made, missed with the command that helps."""

from __future__ import annotations

import importlib
from types import ModuleType

from spark_events.errors import MissingExtraError

__all__ = ["load_extra"]


def load_extra(module: str, extra: str) -> ModuleType:
    """A module of an optional library.

    Raises:
        MissingExtraError: it is not installed; the message says which extra brings it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"{error.name} is not installed; pip install 'spark-events[{extra}]'") from None
