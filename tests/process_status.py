"""Check whether the kernel lets a process read the exit status of a process that is not its child."""

from __future__ import annotations

import platform
import re

_FIRST = (6, 15)


def _is_readable() -> bool:
    if platform.system() != "Linux":
        return False
    version = re.match(r"(\d+)\.(\d+)", platform.release())
    return version is not None and (int(version[1]), int(version[2])) >= _FIRST


EXIT_STATUS_IS_READABLE = _is_readable()
