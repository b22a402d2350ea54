"""Tensor expressions: operators described by rules, and schedules that arrange their loops (docs/python.md)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aot.te.elementwise import (
        abs,
        all,
        any,
        atan2,
        ceil,
        clip,
        const,
        cos,
        exp,
        floor,
        fmod,
        if_then_else,
        log,
        maximum_of,
        minimum_of,
        nearbyint,
        power,
        rsqrt,
        sigmoid,
        sin,
        sqrt,
        tanh,
        trunc,
    )
    from aot.te.lowering import lower
    from aot.te.operation import (
        IterVar,
        Reduce,
        Tensor,
        compute,
        max,
        max_value,
        min,
        min_value,
        placeholder,
        product,
        reduce_axis,
        sum,
    )
    from aot.te.schedule import Schedule, Stage, create_schedule
    from aot.tir.schedule import ScheduleError

__all__ = [
    "IterVar",
    "Reduce",
    "Schedule",
    "ScheduleError",
    "Stage",
    "Tensor",
    "abs",
    "all",
    "any",
    "atan2",
    "ceil",
    "clip",
    "compute",
    "const",
    "cos",
    "create_schedule",
    "exp",
    "floor",
    "fmod",
    "if_then_else",
    "log",
    "lower",
    "max",
    "max_value",
    "maximum_of",
    "min",
    "min_value",
    "minimum_of",
    "nearbyint",
    "placeholder",
    "power",
    "product",
    "reduce_axis",
    "rsqrt",
    "sigmoid",
    "sin",
    "sqrt",
    "sum",
    "tanh",
    "trunc",
]

_HOMES = {
    "aot.te.operation": (
        *("IterVar", "Reduce", "Tensor", "compute", "max", "max_value", "min", "min_value"),
        *("placeholder", "product", "reduce_axis", "sum"),
    ),
    "aot.te.schedule": ("Schedule", "Stage", "create_schedule"),
    "aot.te.lowering": ("lower",),
    "aot.tir.schedule": ("ScheduleError",),
}
"""The module of each name that is not in aot.te.elementwise."""


def __getattr__(name: str) -> Any:
    """Import the module of a name on first use: the rules of operators need only a small part of this package."""
    if name in __all__:
        home = next((file for file, names in _HOMES.items() if name in names), "aot.te.elementwise")
        return getattr(import_module(home), name)
    from aot.errors.tvm_names import missing

    raise missing("te", name)


def __dir__() -> list[str]:
    return __all__
