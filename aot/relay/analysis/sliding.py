"""Which rows of each tensor are already known when a network runs again on a window that has moved on by some rows.

Contract.  The inputs slide: row r of an input in this run is its row r + hop of the last run, for r < rows - hop.  For each
tensor in the result, rows lie along `axis`, and for all r and r' in [lo, hi) with r' = r + shift: row r of this run has the
very bytes of row r' of the last run.  Rows before lo and from hi on (the edges) are those that padding touches somewhere on the
way; they have to be computed in every run.  So of the rows in [lo, hi), only the last `shift` are new.

A tensor is not in the result if its operator is not local in rows (`row_map`), if operands move by different numbers of rows,
if the shift is no multiple of the stride, or if no row is free of padding; `reasons` says which.  Everything that reads such a
tensor is not in the result either.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

from aot.relay.analysis.row_map import NotLocalError, Range, RowForm, row_form
from aot.relay.expr import Call, Expr, Function, post_order, tensor_type
from aot.relay.state import input_vars
from aot.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Slide:
    """How a tensor moves: `rows` along `axis`, by `shift` each run; those in [lo, hi) keep their values.

    `form` is that of its operator, None for an input.
    """

    axis: int
    rows: int
    shift: int
    lo: int
    hi: int
    form: RowForm | None = None

    @property
    def fresh(self) -> Range:
        """The rows of [lo, hi) that no earlier run has computed."""
        return max(self.lo, self.hi - self.shift), self.hi


@dataclass(frozen=True, slots=True)
class Sliding:
    """The tensors that slide, and why the others that read one do not, by the identity of the node.

    `factor`: a hop so many times as large suits the first stride that this one does not suit (1: there is none).
    """

    table: Mapping[int, Slide]
    reasons: Mapping[int, str]
    factor: int = 1

    def of(self, expr: Expr) -> Slide | None:
        """How `expr` moves, None if it does not."""
        return self.table.get(id(expr))


def sliding(main: Function, hops: Mapping[str, tuple[int, int]]) -> Sliding:
    """`hops`: for each input that slides, by name, the axis and the number of new rows, from 1 to its rows."""
    table: dict[int, Slide] = {}
    reasons: dict[int, str] = {}
    factor = 1
    for var in input_vars(main):
        if var.name in hops:
            axis, hop = hops[var.name]
            rows = var.type.shape[axis]
            table[id(var)] = Slide(axis, rows, hop, 0, rows)
    for expr in post_order(main.body):
        if isinstance(expr, Call) and any(id(a) in table for a in expr.args):
            try:
                table[id(expr)] = _slide(expr, [table.get(id(a)) for a in expr.args])
            except NotLocalError as reason:
                reasons[id(expr)] = reason.message
                factor = reason.factor if factor == 1 else factor
    return Sliding(table, reasons, factor)


def _slide(expr: Call, operands: list[Slide | None]) -> Slide:
    form = row_form(expr, [None if s is None else s.axis for s in operands])
    rows = tensor_type(expr).shape[form.axis]
    if rows == 1 and any(s and m and s.rows <= m.extent > 1 for s, m in zip(operands, form.maps, strict=True)):
        raise NotLocalError("works over all rows")
    shifts, lo, hi = set(), 0, rows
    for slide, row_map in zip(operands, form.maps, strict=True):
        if slide is None or row_map is None:
            continue
        if slide.shift % row_map.stride:
            rows_text = f"{slide.shift} rows are" if slide.shift > 1 else "1 row is"
            factor = row_map.stride // gcd(slide.shift, row_map.stride)
            message = f"has the stride {row_map.stride}, which {rows_text} no multiple of (a hop {factor} times as large is)"
            raise NotLocalError(message, factor)
        shifts.add(slide.shift // row_map.stride)
        lo = max(lo, -(-(slide.lo + row_map.before) // row_map.stride))
        hi = min(hi, (slide.hi - row_map.extent + row_map.before) // row_map.stride + 1)
    if len(shifts) > 1:
        raise NotLocalError(f"joins tensors that move by {' and '.join(map(str, sorted(shifts)))} rows")
    if hi <= lo:
        raise NotLocalError("has padding in every row")
    return Slide(form.axis, rows, shifts.pop(), lo, hi, form)
