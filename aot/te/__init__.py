"""Tensor expressions: operators described by rules, and schedules that arrange their loops (docs/python.md)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aot.te.elementwise import *  # noqa: F403
    from aot.te.lowering import *  # noqa: F403
    from aot.te.operation import *  # noqa: F403
    from aot.te.schedule import *  # noqa: F403
    from aot.tir.schedule import ScheduleError as ScheduleError

_HOMES = {
    "aot.te.elementwise": (
        *("abs", "all", "any", "atan2", "ceil", "clip", "const", "cos", "exp", "floor", "fmod", "if_then_else", "log"),
        *("maximum_of", "minimum_of", "nearbyint", "power", "rsqrt", "sigmoid", "sin", "sqrt", "tanh", "trunc"),
    ),
    "aot.te.lowering": ("lower",),
    "aot.te.operation": (
        *("IterVar", "Reduce", "Tensor", "compute", "max", "max_value", "min", "min_value"),
        *("placeholder", "product", "reduce_axis", "sum"),
    ),
    "aot.te.schedule": ("Schedule", "Stage", "create_schedule"),
    "aot.tir.schedule": ("ScheduleError",),
}
"""The public names of each module."""

__all__ = sorted(name for names in _HOMES.values() for name in names)


def __getattr__(name: str) -> Any:
    """Import the module of a name on first use: the rules of operators need only a small part of this package."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    from aot.errors.tvm_names import missing

    raise missing("te", name)


def __dir__() -> list[str]:
    return __all__
