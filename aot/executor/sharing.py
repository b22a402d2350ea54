"""Layers whose kernels differ in numbers only (extents, strides, zero points) share one function, which takes them as arguments.

So code does not grow with the depth of a network, at the price of a few instructions for numbers that are no longer constants.
"""

from __future__ import annotations

from dataclasses import replace

from aot.executor.schedule import Schedule
from aot.tir.transform import merge_functions


def share_functions(schedule: Schedule) -> Schedule:
    """The schedule with merged functions; the calls give the numbers as scalars."""
    calls = list(schedule.calls)
    for members, merged in merge_functions([c.func for c in calls]):
        for i, scalars in zip(members, merged.scalars, strict=True):
            if len(members) > 1:
                calls[i] = replace(calls[i], shared=merged.func, scalars=calls[i].scalars + scalars)
    return replace(schedule, calls=tuple(calls))
