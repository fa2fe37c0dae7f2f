"""Choice of a proxy by HTTPS_PROXY, HTTP_PROXY and NO_PROXY.

httpx would read these variables itself, but fails before sending if NO_PROXY contains an IPv6 network such as
``[::1]``, with an error that does not name the variable.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

from spark_events.errors import TransientError

__all__ = ["proxy_for"]


def proxy_for(url: str) -> str | None:
    """Return the URL of the proxy for an address, or None for a direct connection.

    Raises:
        TransientError: the variable is not a valid proxy; the message does not quote it, because it may contain a
            password.
    """
    parts = urlsplit(url)
    found = getproxies_environment()
    proxy = found.get(parts.scheme)
    if not proxy or _is_excepted(parts.hostname or "", parts.port, found):
        return None
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    try:
        known = urlsplit(proxy)
        if known.scheme in ("http", "https") and known.hostname and known.port != 0:
            return proxy
    except ValueError:
        pass
    raise TransientError(
        f"{parts.scheme.upper()}_PROXY in the environment is not a valid proxy; allowed is http://host:port or"
        " https://host:port"
    )


def _is_excepted(host: str, port: int | None, found: dict[str, str]) -> bool:
    written = f"[{host}]" if ":" in host else host
    names = (host, written, f"{written}:{port}") if port else (host, written)
    return any(proxy_bypass_environment(name, found) for name in names) or _is_in_a_network(host, found.get("no", ""))


def _is_in_a_network(host: str, excepted: str) -> bool:
    """Return whether the host is an address in one of the networks, such as ``10.0.0.0/8`` or ``fd00::/8``."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    for name in excepted.split(","):
        try:
            if address in ipaddress.ip_network(name.strip(), strict=False):
                return True
        except ValueError:
            # The entry is a host name.
            continue
    return False
