"""The executor's passes in their order: from fused functions to a module of PrimFuncs, with a check between the phases."""

from __future__ import annotations

from aot.executor.codegen.tir_module import TirModule, aot_lower_main
from aot.executor.lower.cut_groups import cut_groups
from aot.executor.lower.draft import FusedModule
from aot.executor.lower.optimize import Optimized, optimize_functions
from aot.executor.lower.share_functions import share_functions
from aot.executor.lower.te_compiler import lower_te
from aot.executor.lowered import LoweredModule
from aot.executor.phases import check_phase
from aot.executor.plan.plan_memory import plan_memory
from aot.executor.plan.planned import Planned
from aot.executor.plan.slide_windows import slide_windows
from aot.executor.plan.spread_pools import spread_pools
from aot.executor.select.select_kernels import select_kernels
from aot.ir.module import of_phase
from aot.ir.transform import Sequential

__all__ = [
    "aot_lower_main", "cut_groups", "lower_te", "plan_memory", "select_kernels", "share_functions", "slide_windows",
    "spread_pools",
]  # fmt: skip

GROUPS = Sequential((cut_groups,), "groups")
LOWER = Sequential((lower_te, select_kernels), "lower")
PLAN = Sequential((share_functions, plan_memory), "plan")
MAIN = Sequential((spread_pools, slide_windows, aot_lower_main), "main")


def with_groups(module: FusedModule) -> FusedModule:
    """The groups that are lowered."""
    return check_phase("fused", of_phase(GROUPS(module), FusedModule, "the executor"))


def lower_and_plan(module: FusedModule, done: Optimized) -> Planned:
    """Kernels, their passes, and memory.  `done` keeps what the passes over loop nests made of a function.

    E9101, E9102 for a module that a step left in disorder; NothingFits where there is no plan within the budget.
    """
    lowered = of_phase(LOWER(module), LoweredModule, "the executor")
    lowered = optimize_functions(check_phase("lowered", lowered), done)
    return check_phase("planned", of_phase(PLAN(lowered), Planned, "the executor"))


def lower_main(module: Planned) -> TirModule:
    """Everything as a PrimFunc (E9103); E2013 and E5019 where the pools cannot hold the plan."""
    return check_phase("tir", of_phase(MAIN(module), TirModule, "the executor"))
