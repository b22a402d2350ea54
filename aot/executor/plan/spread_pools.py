"""The pass that spreads the plan that was chosen over the pools, the busiest buffers in the fastest."""

from __future__ import annotations

from dataclasses import replace

from aot.errors import UsageError
from aot.executor.plan.planned import Planned
from aot.executor.plan.storage_map import make_layout
from aot.ir.module import IRModule, of_phase
from aot.ir.transform import PassContext, module_pass


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
