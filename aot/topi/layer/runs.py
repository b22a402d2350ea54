"""Two operands, of which one may be repeated, as runs of bytes."""

from __future__ import annotations

from math import prod
from typing import Literal

from aot.relay.expr import Constant, Expr, Var, tensor_type
from aot.support.dataclass import dataclass
from aot.topi.strategy import Group

Kind = Literal["whole", "inner", "outer"]
"""An operand as large as the result; one whose elements are those of a run, the same for all runs; one element for each run."""


@dataclass(frozen=True, slots=True)
class Runs:
    """`rows` runs of `length`, and what each operand is to them."""

    rows: int
    length: int
    kinds: tuple[Kind, Kind]


def match_runs(group: Group, *, least: int) -> Runs | None:
    """The view of one operator on two int8 operands, tensors or constants, with runs of at least `least` bytes; None for other
    kinds and shapes.
    """
    anchor = group.anchor
    if group.followers or anchor is not group.result or len(anchor.args) != 2:
        return None
    out = tensor_type(anchor)
    if out.dtype != "int8" or not all(isinstance(a, (Var, Constant)) and a.type.dtype == "int8" for a in anchor.args):
        return None
    found = [view_of(a, out.shape) for a in anchor.args]
    kinds = tuple(view[0] for view in found if view is not None)
    if len(kinds) < len(found) or "whole" not in kinds:
        return None
    length = min(view[1] for view in found if view is not None)
    return Runs(out.size // length, length, kinds) if length >= least else None  # type: ignore[arg-type]


def view_of(operand: Expr, shape: tuple[int, ...]) -> tuple[Kind, int] | None:
    """An operand's kind, and the length of the runs that it allows; None if it is repeated otherwise."""
    own, size = tensor_type(operand).shape, prod(shape)
    if prod(own) == size:
        return "whole", size
    own = (1,) * (len(shape) - len(own)) + own
    inner = next((i for i, n in enumerate(own) if n > 1), len(own))
    if own[inner:] == shape[inner:] and inner < len(own):
        return "inner", prod(own)
    outer = next((i for i in range(len(own), 0, -1) if own[i - 1] > 1), 0)
    return ("outer", size // prod(own)) if own[:outer] == shape[:outer] else None
