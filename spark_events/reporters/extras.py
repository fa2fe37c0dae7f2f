"""Import of optional libraries, with a message that names the extra to install."""

from __future__ import annotations

import importlib
from types import ModuleType

from spark_events.errors import MissingExtraError

__all__ = ["load_extra"]


def load_extra(module: str, extra: str) -> ModuleType:
    """Import a module of an optional library.

    Raises:
        MissingExtraError: the library is not installed; the message names the extra.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"{error.name} is not installed; run: pip install 'spark-events[{extra}]'") from None
