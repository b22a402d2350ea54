"""CutGroups: fused functions cut where that gives their layer a kernel."""

from __future__ import annotations

from dataclasses import replace

from aot.executor.lower.draft import FusedModule
from aot.executor.lower.groups import with_cut_groups
from aot.ir.module import IRModule, of_phase
from aot.ir.transform import PassContext, module_pass


@module_pass(required=True)
def cut_groups(module: IRModule, _context: PassContext) -> IRModule:
    """Groups cut for which no kernel is made, though there is one for less of them.

    In and out: a FusedModule.
    """
    fused = of_phase(module, FusedModule, "cut_groups")
    return replace(fused, functions={"main": with_cut_groups(fused.main, fused.target, fused.known.accepted)})
