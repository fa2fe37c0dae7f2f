"""Finding what a setting names as ``package.module:Class``."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["load"]


def load(path: str) -> Any:
    """What ``package.module:Class`` names.

    Raises:
        ValueError: it is not of that form, or there is no such thing; the message says why.
    """
    module_name, separator, attribute = path.partition(":")
    if not separator or not module_name or not attribute:
        raise ValueError("no such type")
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except AttributeError:
        raise ValueError(f"{module_name} has no {attribute}") from None
    except (Exception, SystemExit) as error:
        # A script of the user's may end itself where it is not the program.
        raise ValueError(f"{module_name} cannot be imported: {type(error).__name__}: {error}") from None
