"""A tensor that is another one in another order of elements, and views of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from aot.ir.span import Span
from aot.relay.analysis.rearrangement import Rearrangement
from aot.relay.construct import constructor
from aot.relay.expr import Call, Expr, tensor_type
from aot.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Moved:
    """`by` of `base`, in any shape; `group`: one of the transposes that it stands for."""

    base: Expr
    by: Rearrangement
    group: int
    span: Span


def reshaped(expr: Expr, shape: Sequence[int], span: Span) -> Expr:
    """`expr` reshaped; unchanged if the shape matches."""
    if tensor_type(expr).shape == tuple(shape):
        return expr
    return with_span(constructor("reshape")(expr, newshape=tuple(shape)), span)


def transposed(expr: Expr, axes: Sequence[int], span: Span) -> Expr:
    """`expr` with its dimensions in another order."""
    return with_span(constructor("transpose")(expr, axes=tuple(axes)), span)


def with_span(expr: Expr, span: Span) -> Expr:
    """The same call, from another place of the file."""
    assert isinstance(expr, Call)
    return replace(expr, span=span)
