"""Find free ports for servers that must know their port in advance, or restart on the same port."""

from __future__ import annotations

import random
import socket
from pathlib import Path

__all__ = ["free_port"]

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST = 15_000


def free_port() -> int:
    """Return a port without a listener, outside the range that the kernel assigns to outgoing connections.

    The kernel may assign an ephemeral port to another connection before the server uses the port. A client that
    connects to an ephemeral port while the server is down may even connect to itself.
    """
    end = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 32_768
    while True:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", random.randrange(_FIRST, end)))
            except OSError:
                continue
            return int(probe.getsockname()[1])
