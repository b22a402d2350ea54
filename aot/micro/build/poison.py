"""The bytes of the workspace that are dead after each layer, so that a test run can overwrite them.

They follow from the plan in the metadata: bytes are dead if no buffer that is alive covers them.  Scratch memory and results
that are not written yet also count as dead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aot.support.dataclass import dataclass

Interval = tuple[int, int]
"""First byte, and byte after the last."""


@dataclass(frozen=True, slots=True)
class Area:
    """An array of the workspace: bytes `base` to `base` + `size` of the plan."""

    array: str
    base: int
    size: int


def areas(name: str, workspace: Mapping[str, Any]) -> list[Area]:
    """The arrays of a model's workspace: `<name>_workspace` (the first pool, if there are pools), and the other pools."""
    pools = workspace.get("pools") or [{"base": 0, "used": workspace["size"]}]
    names = [f"{name}_workspace", *(f"{name}_pool_{p['name']}" for p in pools[1:])]
    return [Area(array, int(p["base"]), int(p["used"])) for array, p in zip(names, pools, strict=True) if p["used"]]


def within_areas(dead: Sequence[Interval], places: Sequence[Area]) -> list[tuple[int, int, int]]:
    """The intervals of the plan as (number of the area, first byte in it, byte after the last)."""
    intervals = []
    for start, end in dead:
        for k, area in enumerate(places):
            low, high = max(start, area.base), min(end, area.base + area.size)
            if low < high:
                intervals.append((k, low - area.base, high - area.base))
    return intervals


def dead_intervals(
    workspace: Mapping[str, Any], layers: int, control: Sequence[Mapping[str, Any]] = ()
) -> list[list[Interval]]:  # fmt: skip
    """For each layer, the bytes of the plan that are dead after it, in ascending order.

    `workspace` and `control` come from the metadata; without a list of buffers, nothing counts as dead.  A buffer that is used
    at a loop's first layer stays alive after its last one, because the next iteration reads it.
    """
    if "buffers" not in workspace:
        return [[] for _ in range(layers)]
    loops = [(c["first"], c["last"]) for c in control if c["kind"] == "while"]
    return [_dead(workspace, after=layer, loops=loops) for layer in range(layers)]


def _dead(workspace: Mapping[str, Any], *, after: int, loops: Sequence[tuple[int, int]]) -> list[Interval]:
    again = [first for first, last in loops if last == after]
    live = [
        b
        for b in workspace["buffers"]
        if b["size"] and (b["first"] <= after < b["last"] or (b["last"] == after and any(b["first"] <= f for f in again)))
    ]
    dead: list[Interval] = []
    at = 0
    for start, size in sorted((b["offset"], b["size"]) for b in live):
        if start > at:
            dead.append((at, start))
        at = max(at, start + size)
    return [*dead, (at, workspace["size"])] if at < workspace["size"] else dead
