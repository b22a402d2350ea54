"""Tensor expressions, for generic lowerings and epilogues."""

from aot.te.lower import create_prim_func, emit_nest
from aot.te.tensor import At, IterVar, Tensor, compute, max, min, placeholder, reduce, reduce_axis, sum

__all__ = [
    "At",
    "IterVar",
    "Tensor",
    "compute",
    "create_prim_func",
    "emit_nest",
    "max",
    "min",
    "placeholder",
    "reduce",
    "reduce_axis",
    "sum",
]
