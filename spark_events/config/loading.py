"""Import of objects that settings name as ``package.module:Class``."""

from __future__ import annotations

import importlib
from typing import Any


def load(path: str) -> Any:
    """Import the object ``package.module:Class``.

    Raises:
        ValueError: the path is invalid or the object does not exist; the message states the problem.
    """
    module_name, separator, attribute = path.partition(":")
    if not separator or not module_name or not attribute:
        raise ValueError("no such type")
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except AttributeError:
        raise ValueError(f"{module_name} has no {attribute}") from None
    except (Exception, SystemExit) as error:
        # Catch SystemExit too, because a user's script may call sys.exit when it is imported.
        raise ValueError(f"{module_name} cannot be imported: {type(error).__name__}: {error}") from None
