"""Two operands, of which one may be repeated along the outer axes, as runs of bytes."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from aot.relay.expr import Constant, Expr, Var, tensor_type
from aot.topi.strategy import Group

LEAST = 16
"""Bytes of a run from which on vectors pay."""


@dataclass(frozen=True, slots=True)
class Runs:
    """`rows` runs of `length`; `moves`: whether an operand continues from run to run."""

    rows: int
    length: int
    moves: tuple[bool, bool]


def match_runs(group: Group) -> Runs | None:
    """The view of one operator on two int8 operands, tensors or constants; None for other kinds and shapes."""
    anchor = group.anchor
    if group.followers or anchor is not group.result or len(anchor.args) != 2:
        return None
    out = tensor_type(anchor)
    if out.dtype != "int8" or not all(isinstance(a, (Var, Constant)) and a.type.dtype == "int8" for a in anchor.args):
        return None
    sizes = [prod(tensor_type(a).shape) for a in anchor.args]
    length = min(sizes)
    if max(sizes) != out.size or length < LEAST or not all(_is_inner(a, out.shape) for a in anchor.args):
        return None
    return Runs(out.size // length, length, (sizes[0] == out.size, sizes[1] == out.size))


def _is_inner(operand: Expr, shape: tuple[int, ...]) -> bool:
    """Whether the operand's elements are those of the result's inner axes."""
    own = tensor_type(operand).shape
    inner = own[next((i for i, n in enumerate(own) if n > 1), len(own)) :]
    return not inner or tuple(shape[-len(inner) :]) == tuple(inner)
