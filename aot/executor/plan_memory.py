"""The passes that plan memory, and spread the chosen plan over the pools.

A window is in the state, the new rows behind those that are kept (`copy_elision`).  So the state is longer than what has to
live from run to run by the new rows of one window, those that no other window has room for.  Where they are many for what is
kept, and the workspace has room when they are made, a window is put together there: what is kept of it is copied in and out.
"""

from __future__ import annotations

from dataclasses import replace

from aot.errors import UsageError
from aot.executor.config import SLIDE_SHARE
from aot.executor.lowered import LoweredModule
from aot.executor.slide_windows import least_state
from aot.executor.storage_map import Planned, make_layout, plan_lowered
from aot.ir.module import IRModule, of_phase
from aot.ir.transform import PassContext, module_pass


@module_pass(required=True)
def plan_memory(module: IRModule, _context: PassContext) -> IRModule:
    """The place of every tensor, by liveness and safe distances; copies become views.

    In: a LoweredModule.  Out: a Planned, whose plan the verifier accepts (E9005).
    """
    lowered = of_phase(module, LoweredModule, "plan_memory")
    planning = lowered.planning
    planned = plan_lowered(lowered, planning.io, tight=planning.tight)
    if lowered.config.slides and (planning.rings == "copy" or planning.ring_share):
        return _with_visitors(lowered, planned)
    return planned


def _with_visitors(lowered: LoweredModule, planned: Planned) -> Planned:
    """With windows in the workspace, one after the other, while the state is too long and all memory gets less by it."""
    kept, visiting = sum(s.old.type.nbytes for s in lowered.states), set[int]()

    def total(plan: Planned) -> tuple[bool, int]:
        return not plan.fits, plan.whole + least_state(plan)

    while least_state(planned) > kept + kept // SLIDE_SHARE:
        trials = []
        for i in {i for i, s in enumerate(planned.states) if planned.root(s.new) is planned.root(s.old)} - visiting:
            trial = plan_lowered(lowered, lowered.planning.io, tight=lowered.planning.tight, visiting={i, *visiting})
            trials.append((total(trial), i, trial))
        least, best, trial = min(trials, key=lambda t: t[:2], default=(total(planned), -1, planned))
        if best < 0 or least >= total(planned):
            break
        planned, visiting = trial, {best, *visiting}
    return planned


@module_pass(required=True)
def spread_pools(module: IRModule, _context: PassContext) -> IRModule:
    """Each buffer in the pool where all accesses take the least time, in no more bytes than the plan has.

    In: a Planned.  Out: a Planned of the same calls; as it is without pools, or where one holds all of it and none is faster.
    Raises E2013 where the pools cannot hold it, and E5019 for a pin that names nothing of it.
    """
    planned = of_phase(module, Planned, "spread_pools")
    if not planned.planning.pooling.pools:
        return planned
    if isinstance(planned.layout.unfit, UsageError):
        raise planned.layout.unfit
    layout = make_layout(planned, planned.planning.io, spread=True)
    if layout.unfit is not None:
        raise layout.unfit
    return replace(planned, layout=layout)
