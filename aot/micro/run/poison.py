"""Which bytes of the workspace hold nothing after each layer, so that a test run may overwrite them.

They follow from the plan in the metadata alone: what lies between the first and the last step of no buffer is dead.  Scratch
memory and results that are not written yet also count as dead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Interval = tuple[int, int]
"""First byte and end."""


def dead_intervals(
    workspace: Mapping[str, Any], layers: int, control: Sequence[Mapping[str, Any]] = ()
) -> list[list[Interval]]:  # fmt: skip
    """For each layer the bytes of the workspace that are dead when it has run, in ascending order.

    `workspace` and `control` are those of the metadata; without a list of buffers nothing is taken for dead.  What is in use
    from a loop's first to its last layer is read again in the next iteration.
    """
    if "buffers" not in workspace:
        return [[] for _ in range(layers)]
    size = first_pool(workspace)
    loops = [(c["first"], c["last"]) for c in control if c["kind"] == "while"]
    every = [_dead(workspace, after=layer, loops=loops) for layer in range(layers)]
    return [[(start, min(end, size)) for start, end in found if start < size] for found in every]


def first_pool(workspace: Mapping[str, Any]) -> int:
    """Bytes of the array `<name>_workspace`: the first pool, where there are several, which is all that a test run looks at."""
    pools = workspace.get("pools")
    return int(pools[0]["used"] if pools else workspace["size"])


def _dead(workspace: Mapping[str, Any], *, after: int, loops: Sequence[tuple[int, int]]) -> list[Interval]:
    again = [first for first, last in loops if last == after]
    live = [
        b
        for b in workspace["buffers"]
        if b["size"] and (b["first"] <= after < b["last"] or (b["last"] == after and any(b["first"] <= f for f in again)))
    ]
    found: list[Interval] = []
    at = 0
    for start, size in sorted((b["offset"], b["size"]) for b in live):
        if start > at:
            found.append((at, start))
        at = max(at, start + size)
    return [*found, (at, workspace["size"])] if at < workspace["size"] else found
