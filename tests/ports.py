"""Ports of loopback for servers that must know theirs before they are there, or come back to the same."""

from __future__ import annotations

import random
import socket
from pathlib import Path

__all__ = ["free_port"]

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST = 15_000


def free_port() -> int:
    """One that nobody listens on, and that the kernel gives to no outgoing connection.

    A port that the kernel has chosen may be that of somebody's connection when the server comes to it a moment later;
    and who tries to reach a server that is away, on such a port, may in the end reach himself.
    """
    end = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 32_768
    while True:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", random.randrange(_FIRST, end)))
            except OSError:
                continue
            return int(probe.getsockname()[1])
