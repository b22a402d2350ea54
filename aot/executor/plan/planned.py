"""A model with its memory plan, the copies replaced by views where that needs no more memory."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields

from aot.executor.check import check_lowered
from aot.executor.lowered import LoweredModule
from aot.executor.plan.aliases import with_aliases
from aot.executor.plan.coalesce import without_copies
from aot.executor.plan.part_copies import with_gathered_rows
from aot.executor.plan.state_plan import has_fixed_layout
from aot.executor.plan.state_windows import with_windows
from aot.executor.plan.storage_map import StorageMap, make_layout
from aot.executor.select.config import Io
from aot.memory.bounds import liveness_bound
from aot.support.dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned(LoweredModule):
    """A lowered module with the memory plan that was made for it."""

    layout: StorageMap

    @property
    def size(self) -> int:
        """Bytes of the workspace, of all pools together."""
        return self.layout.plan.size

    @property
    def whole(self) -> int:
        """Bytes of the workspace in one memory, by which plans are compared with pools as without."""
        return self.layout.whole

    @property
    def fits(self) -> bool:
        """Whether the pools hold it, if there are some."""
        return self.layout.unfit is None


def plan_lowered(lowered: LoweredModule, io: Io, *, tight: bool = False, visiting: Collection[int] = ()) -> Planned:
    """Views for copies, within the memory of whole tensors side by side; with `tight` within that of the plan with the copies.

    A tensor that is made part by part has to be there earlier.  `visiting`: numbers of states whose windows lie in the workspace.
    """
    check_lowered(lowered)
    lowered = without_copies(lowered)
    if lowered.states and not has_fixed_layout(lowered):
        lowered = with_windows(lowered, visiting)
        check_lowered(lowered)
    best, layout = _with_gathers(lowered, io) if lowered.states else (lowered, make_layout(lowered, io))
    lowered = best
    limit = layout.whole if tight else max(layout.whole, liveness_bound(layout.buffers))
    for kind in ({"slices": True, "parts": True}, {"slices": True, "parts": False}, {"slices": False, "parts": True}):
        trial = with_aliases(lowered, **kind)
        if len(trial.calls) >= len(best.calls):
            continue
        check_lowered(trial)
        planned = make_layout(trial, io)
        if planned.rank <= max((layout.unfit is not None, limit), layout.rank):
            best, layout = trial, planned
    return Planned(**{f.name: getattr(best, f.name) for f in fields(LoweredModule)}, layout=layout)


def _with_gathers(lowered: LoweredModule, io: Io) -> tuple[LoweredModule, StorageMap]:
    """Rows of a state copied into what layers write beside them, all of them or the short ones, where the plan does not grow."""
    layout = make_layout(lowered, io)
    if not lowered.controls:
        for most in (layout.whole, layout.whole // 2):
            trial = with_gathered_rows(lowered, most)
            if trial.calls == lowered.calls:
                break
            check_lowered(trial)
            planned = make_layout(trial, io)
            if planned.rank <= layout.rank:
                return trial, planned
    return lowered, layout
