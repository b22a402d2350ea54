"""Which places a conflict allows, by the definition."""

from __future__ import annotations

from aot.memory.plan import Conflict


def allowed(c: Conflict, a: tuple[int, int], b: tuple[int, int]) -> bool:
    """By the definition, for two (offset, size)."""
    apart = a[0] + a[1] <= b[0] or b[0] + b[1] <= a[0]
    return apart or not a[1] or not b[1] or (c.min_distance is not None and b[0] - a[0] >= c.min_distance)
