"""The memory plan as data: buffers, overlaps, the peak and the layers that set it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aot.support.text import does_of

_FIELDS = ("size", "liveness_bound", "streaming_bound", "fed_bound", "plan_lower_bound", "optimal", "buffers")
_SEARCHES = ("order", "rows", "cascades", "pool_choice")
"""Results of other searches; the first three only if they stopped at their limit."""


def plan_data(workspace: Mapping[str, Any], layers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The plan of metadata.json as the drawing needs it; sizes and addresses in bytes, steps are layers.

    `overlaps`: pairs of buffers that share addresses during a step.  `peak`: the steps in which a live buffer reaches the end of
    the workspace, with their layers and live buffers.
    """
    buffers, size = workspace["buffers"], workspace["size"]
    plan = {"layers": len(layers)} | {k: workspace[k] for k in _FIELDS}
    if workspace.get("pools"):
        plan["pools"] = [{k: p[k] for k in ("name", "base", "used", "size", "address", "speed")} for p in workspace["pools"]]
    plan |= {k: workspace[k] for k in _SEARCHES if k in workspace}
    return plan | {"overlaps": overlaps(buffers), "peak": peak(buffers, size=size, layers=layers)}


def overlaps(buffers: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Pairs of buffers (`below` starts lower) that share the addresses `offset` to `offset + size` in the steps first to last."""
    shared = []
    for k, a in enumerate(buffers):
        for b in buffers[k + 1 :]:
            first, last = max(a["first"], b["first"]), min(a["last"], b["last"])
            start, end = max(a["offset"], b["offset"]), min(a["offset"] + a["size"], b["offset"] + b["size"])
            if first <= last and start < end:
                low, high = (a, b) if a["offset"] <= b["offset"] else (b, a)
                row = {"below": low["name"], "above": high["name"], "offset": start, "size": end - start}
                shared.append(row | {"first": first, "last": last})
    return shared


def peak(buffers: Sequence[Mapping[str, Any]], *, size: int, layers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The steps in which a live buffer ends at the end of the workspace."""
    steps = sorted({s for b in buffers if b["offset"] + b["size"] == size for s in range(b["first"], b["last"] + 1)})
    rows = []
    for step in steps:
        layer = layers[step] if 0 <= step < len(layers) else None
        what = "inputs" if step < 0 else "outputs" if layer is None else f"{does_of(layer)} {layer['name']}"
        live = [b["name"] for b in buffers if b["first"] <= step <= b["last"]]
        rows.append({"step": step, "what": what, "live": live})
    return {"bytes": size, "steps": rows}
