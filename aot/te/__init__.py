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
    "IterVar": "aot.te.operation",
    "Reduce": "aot.te.operation",
    "Schedule": "aot.te.schedule",
    "ScheduleError": "aot.tir.schedule",
    "Stage": "aot.te.schedule",
    "Tensor": "aot.te.operation",
    "abs": "aot.te.elementwise",
    "all": "aot.te.elementwise",
    "any": "aot.te.elementwise",
    "atan2": "aot.te.elementwise",
    "ceil": "aot.te.elementwise",
    "clip": "aot.te.elementwise",
    "compute": "aot.te.operation",
    "const": "aot.te.elementwise",
    "cos": "aot.te.elementwise",
    "create_schedule": "aot.te.schedule",
    "exp": "aot.te.elementwise",
    "floor": "aot.te.elementwise",
    "fmod": "aot.te.elementwise",
    "if_then_else": "aot.te.elementwise",
    "log": "aot.te.elementwise",
    "lower": "aot.te.lowering",
    "max": "aot.te.operation",
    "max_value": "aot.te.operation",
    "maximum_of": "aot.te.elementwise",
    "min": "aot.te.operation",
    "min_value": "aot.te.operation",
    "minimum_of": "aot.te.elementwise",
    "nearbyint": "aot.te.elementwise",
    "placeholder": "aot.te.operation",
    "power": "aot.te.elementwise",
    "product": "aot.te.operation",
    "reduce_axis": "aot.te.operation",
    "rsqrt": "aot.te.elementwise",
    "sigmoid": "aot.te.elementwise",
    "sin": "aot.te.elementwise",
    "sqrt": "aot.te.elementwise",
    "sum": "aot.te.operation",
    "tanh": "aot.te.elementwise",
    "trunc": "aot.te.elementwise",
}


def __getattr__(name: str) -> Any:
    """The file of a name is imported when it is used: the rules of operators need little of this package."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    from aot.errors.tvm_names import missing

    raise missing("te", name)


def __dir__() -> list[str]:
    return __all__
