"""Reductions over all rows of a window that moves, as sums that are kept from run to run.

Of the rows [lo, hi) that keep their values, a run adds the new ones to the sum of those that have stayed, and takes off the ones
that leave before the next run; the rows at the edges are added anew each time.  Sums of integers are exact whatever their order.
A maximum has no such form: two stacks of partial maxima would take twice the rows, which are there to be looked at again.
"""

from __future__ import annotations

from aot.relay.analysis.row_map import Range
from aot.relay.analysis.sliding import Slide, Sliding
from aot.relay.expr import Call, Expr, is_call, tensor_type
from aot.support.dataclass import dataclass
from aot.support.dtype import bits

WORTH = 1 / 8
"""The part of the rows up to which a running sum pays: kernels of whole windows add four bytes at a time, sums are in 32 bits."""


@dataclass(frozen=True, slots=True)
class RunningSum:
    """The reduction of `data`, whose rows move by `slide`, over `axes`, time among them; of `count` numbers each."""

    data: Expr
    slide: Slide
    axes: tuple[int, ...]
    count: int

    @property
    def edges(self) -> tuple[Range, ...]:
        """Rows that are added anew each time."""
        return tuple(r for r in ((0, self.slide.lo), (self.slide.hi, self.slide.rows)) if r[0] < r[1])

    @property
    def leaving(self) -> Range:
        """Rows that the next run does not have."""
        return self.slide.lo, self.slide.lo + self.slide.shift

    @property
    def share(self) -> float:
        """The part of the rows that a run reads."""
        return (2 * self.slide.shift + sum(b - a for a, b in self.edges)) / self.slide.rows

    @property
    def numbers(self) -> int:
        """How many sums there are."""
        return tensor_type(self.data).size // self.count

    @property
    def nbytes(self) -> int:
        return 4 * self.numbers


def running_sum(expr: Expr, sliding: Sliding) -> RunningSum | None:
    """`expr` as a sum that is kept, where that reads few rows and 32 bits hold it; else None."""
    if not isinstance(expr, Call) or sliding.of(expr) is not None:
        return None
    axes = _axes(expr)
    slide = sliding.of(expr.args[0]) if axes else None
    if slide is None or slide.axis not in axes or slide.lo + slide.shift > slide.hi - slide.shift:
        return None
    type_ = tensor_type(expr.args[0])
    count = type_.size // max(1, tensor_type(expr).size)
    if type_.dtype not in ("int8", "uint8", "int16") or count >= 1 << (30 - bits(type_.dtype)):
        return None
    found = RunningSum(expr.args[0], slide, axes, count)
    return found if found.share <= WORTH else None


def _axes(expr: Call) -> tuple[int, ...]:
    """The axes that a mean or sum of quantised values is over, if it is one over whole axes."""
    if is_call(expr, "mean") or is_call(expr, "qnn.sum"):
        rank = len(tensor_type(expr.args[0]).shape)
        return tuple(sorted(a % rank for a in expr.attrs.axes))
    if is_call(expr, "nn.avg_pool2d"):
        whole = tensor_type(expr.args[0]).shape[1:3] == tuple(expr.attrs.pool_size)
        return (1, 2) if whole and not any(expr.attrs.padding) else ()
    return ()
