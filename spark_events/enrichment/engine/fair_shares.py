"""Max-min fair division of a limit between processes."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import TypeVar

__all__ = ["fair_shares", "whole_shares"]

K = TypeVar("K", bound=Hashable)


def fair_shares(limit: float, wanted: Mapping[K, float]) -> dict[K, float]:
    """Divide a limit. Who can use less than an equal part gets less; the others share the rest.

    If all together can use less than the limit, they share what is left, so that each can grow.

    Args:
        limit: the limit; may be infinite.
        wanted: how much each can use; infinite: any amount.
    """
    if limit == math.inf:
        return dict.fromkeys(wanted, math.inf)
    left, shares = limit, dict[K, float]()
    order = sorted(wanted, key=wanted.__getitem__)
    for number, name in enumerate(order):
        shares[name] = min(wanted[name], left / (len(order) - number))
        left -= shares[name]
    spare = left / len(order) if order else 0.0
    return {name: share + spare for name, share in shares.items()}


def whole_shares(limit: int, wanted: Mapping[K, float], held: Mapping[K, int] | None = None) -> dict[K, int]:
    """Divide a limit into whole shares like :func:`fair_shares`.

    Args:
        limit: the limit.
        wanted: how much each can use; infinite: any amount.
        held: how much each has now; None: it does not matter. What remains after rounding stays where it is. If it
            moved with each change of the wanted amounts, its receiver would often wait for it.
    """
    shares = {name: math.floor(share) for name, share in fair_shares(limit, wanted).items()}
    rest = limit - sum(shares.values())
    order = {
        name: (held[name] - share if held else 0, wanted[name], number)
        for number, (name, share) in enumerate(shares.items())
    }
    for name in sorted(shares, key=order.__getitem__, reverse=True):
        if rest > 0 and shares[name] < wanted[name]:
            shares[name] += 1
            rest -= 1
    return shares
