"""Tensor expressions: operators described by rules, and schedules that arrange their loops (docs/python.md)."""

from __future__ import annotations

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
