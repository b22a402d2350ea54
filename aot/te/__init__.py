"""Tensor expressions: operators described by rules, and schedules that arrange their loops (docs/python.md)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aot.te.elementwise import all, any, clip, const, if_then_else, maximum_of, minimum_of
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
    "all",
    "any",
    "clip",
    "compute",
    "const",
    "create_schedule",
    "if_then_else",
    "lower",
    "max",
    "max_value",
    "maximum_of",
    "min",
    "min_value",
    "minimum_of",
    "placeholder",
    "product",
    "reduce_axis",
    "sum",
]

_HOMES = {
    "IterVar": "aot.te.operation",
    "Reduce": "aot.te.operation",
    "Schedule": "aot.te.schedule",
    "ScheduleError": "aot.tir.schedule",
    "Stage": "aot.te.schedule",
    "Tensor": "aot.te.operation",
    "all": "aot.te.elementwise",
    "any": "aot.te.elementwise",
    "clip": "aot.te.elementwise",
    "compute": "aot.te.operation",
    "const": "aot.te.elementwise",
    "create_schedule": "aot.te.schedule",
    "if_then_else": "aot.te.elementwise",
    "lower": "aot.te.lowering",
    "max": "aot.te.operation",
    "max_value": "aot.te.operation",
    "maximum_of": "aot.te.elementwise",
    "min": "aot.te.operation",
    "min_value": "aot.te.operation",
    "minimum_of": "aot.te.elementwise",
    "placeholder": "aot.te.operation",
    "product": "aot.te.operation",
    "reduce_axis": "aot.te.operation",
    "sum": "aot.te.operation",
}


def __getattr__(name: str) -> Any:
    """The file of a name is imported when it is used: the rules of operators need little of this package."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    from aot.errors.tvm_names import missing

    raise missing("te", name)


def __dir__() -> list[str]:
    return __all__
