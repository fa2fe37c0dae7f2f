"""Max-min fair division of a limit between processes."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import TypeVar

__all__ = ["fair_shares"]

K = TypeVar("K", bound=Hashable)


def fair_shares(limit: float, wanted: Mapping[K, float], *, whole: bool = False) -> dict[K, float]:
    """Divide a limit. Who can use less than an equal part gets less; the others share the rest.

    If all together can use less than the limit, they share what is left, so that each can grow.

    Args:
        limit: the limit; may be infinite.
        wanted: how much each can use; infinite: any amount.
        whole: whether shares are whole numbers.
    """
    if limit == math.inf:
        return dict.fromkeys(wanted, math.inf)
    left, shares = limit, dict[K, float]()
    order = sorted(wanted, key=wanted.__getitem__)
    for number, name in enumerate(order):
        part = left / (len(order) - number)
        shares[name] = min(wanted[name], part)
        if whole:
            shares[name] = math.floor(shares[name])
        left -= shares[name]
    spare = left / len(order) if order else 0.0
    return {name: share + (math.floor(spare) if whole else spare) for name, share in shares.items()}
