"""TRANSPOSE of bytes and of halfwords by tiles in registers (cores with DSP).

Every movement of one tensor that is rows to columns, once or many times, whatever operators say it: where the innermost axis of
the result is not that of the data, tiles cover these two axes; what else there is are loops.  A last tile that would leave the
tensor begins earlier and does some elements twice.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from aot.relay.expr import Var, tensor_type
from aot.support.dataclass import dataclass
from aot.support.dtype import is_float, itemsize
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, imm, minimum
from aot.tir.function import FuncAttrs
from aot.topi.arm_dsp.move.intrin import Along, Form, instructions, transposed
from aot.topi.generic.copy import Axis, Nest, plan_movement
from aot.topi.strategy import Group, Lowered, register_planned

LEAST = 64
"""Bytes from which on the loops pay."""


@dataclass(frozen=True, slots=True)
class Plan:
    """`rows` are contiguous in the result, `columns` in the data, `outer` axes around them; in elements of `form`'s type."""

    out: int
    start: int
    outer: tuple[Axis, ...]
    rows: Axis
    columns: Axis
    form: Form

    @property
    def counts(self) -> tuple[int, int]:
        """Elements along the tiles of one block, and across them."""
        counts = self.rows.count, self.columns.count
        return counts if self.form.along == "rows" else (counts[1], counts[0])


def plan(group: Group, target: Target) -> Plan | None:
    """None for other cores and movements, for elements of four bytes, and for axes that are too short."""
    result = tensor_type(group.result)
    if not target.has("dsp") or not target.has("unaligned") or len(group.params) != 1:
        return None
    if is_float(result.dtype) or itemsize(result.dtype) > 2 or result.size * itemsize(result.dtype) < LEAST:
        return None
    movement = plan_movement(group)
    if movement is None or movement.epilogue or len(movement.nests) != 1:
        return None
    if not movement.nests[0].source or not isinstance(movement.sources[movement.nests[0].source - 1].node, Var):
        return None
    nest, size = _in_units(movement.nests[0], itemsize(result.dtype))
    contiguous = [axis for axis in nest.axes[:-1] if axis.source == 1]
    if nest.inner.out != 1 or len(contiguous) != 1:
        return None
    form = form_of(nest.inner, contiguous[0], size)
    outer = tuple(axis for axis in nest.axes[:-1] if axis is not contiguous[0])
    return None if form is None else Plan(nest.out, nest.start, outer, nest.inner, contiguous[0], form)


def _in_units(nest: Nest, size: int) -> tuple[Nest, int]:
    """The nest on elements of `size` bytes; where it moves pairs of bytes, on these."""
    numbers = [nest.out, nest.start, *(n for axis in nest.axes[:-1] for n in (axis.out, axis.source))]
    if size != 1 or nest.inner != Axis(2, 1, 1) or any(n % 2 for n in numbers) or len(nest.axes) < 2:
        return nest, size
    axes = tuple(Axis(a.count, a.out // 2, a.source // 2) for a in nest.axes[:-1])
    return replace(nest, out=nest.out // 2, start=nest.start // 2, axes=axes), 2


def form_of(rows: Axis, columns: Axis, size: int) -> Form | None:
    """The tiles for so many rows (contiguous in the result) and columns (in the data) of elements of `size` bytes."""
    counts = rows.count, columns.count
    along: Along = "rows" if rows.count >= columns.count else "columns"
    if size == 2:
        form = Form("int16", 2, 2, along) if min(counts) >= 2 else None
    elif min(counts) >= 4:
        form = Form("int8", 4, 4, along)
    elif rows.count in (2, 3) and columns.count >= 4 and columns.out == rows.count:
        form = Form("int8", rows.count, 4, "columns")
    elif columns.count in (2, 3) and rows.count >= 4 and rows.source == columns.count:
        form = Form("int8", 4, columns.count, "rows")
    else:
        form = None
    if form is None:
        return None
    most = 2 if form.rows == form.columns == 4 else 4
    return replace(form, unroll=max(n for n in range(1, most + 1) if max(counts) // form.step % n == 0))


def lower(group: Group, _target: Target, name: str, found: Plan) -> Lowered:
    form, result = found.form, tensor_type(group.result)
    wide = 2 if form.dtype == "int16" else 1
    size = result.size * itemsize(result.dtype) // wide
    align = 4 if size * wide % 4 == 0 else 1
    b = IRBuilder(name)
    data = b.input("data", (tensor_type(group.params[0]).size,), result.dtype, align=align)
    out = b.output("out", (result.size,), result.dtype, align=align)

    def nested(axes: tuple[Axis, ...], start: Expr, place: Expr) -> None:
        if not axes:
            _matrix(b, found, (data, start), (out, place))
            return
        with b.for_("i", axes[0].count) as i:
            nested(axes[1:], start + i * axes[0].source, place + i * axes[0].out)

    nested(found.outer, imm(found.start), imm(found.out))
    func = b.finish(FuncAttrs(kernel=f"arm_dsp.transpose(rows={form.rows}, columns={form.columns})", span=group.anchor.span))
    (along, across), step = found.counts, form.step
    strips = prod(axis.count for axis in found.outer) * -(-across // (form.rows if form.along == "columns" else form.columns))
    each = instructions(form) * along // step // form.unroll + 20 + (instructions(form) + 12) * bool(along % step)
    code = 120 + 4 * instructions(form) * (1 + bool(along % step))
    return Lowered(func, {}, strips * each + 20, code)


def _matrix(b: IRBuilder, found: Plan, data: tuple[Buffer, Expr], out: tuple[Buffer, Expr]) -> None:
    """One transposition, in strips of tiles along the longer axis."""
    form = found.form
    count, width = found.counts[1], form.columns if form.along == "rows" else form.rows
    if count <= width:
        _strip(b, found, data, out)
        return
    stride, out_stride = (1, found.columns.out) if form.along == "rows" else (found.rows.source, 1)
    with b.for_("k", -(-count // width)) as k:
        first = b.let("first", minimum(k * width, count - width) if count % width else k * width)
        _strip(b, found, (data[0], data[1] + first * stride), (out[0], out[1] + first * out_stride))


def _strip(b: IRBuilder, found: Plan, data: tuple[Buffer, Expr], out: tuple[Buffer, Expr]) -> None:
    """All tiles of a strip, and one that ends where it ends."""
    form, strides = found.form, (imm(found.rows.source), imm(found.columns.out))
    count, step = found.counts[0], form.step
    steps = (found.rows.source, 1) if form.along == "rows" else (1, found.columns.out)
    tiles = [(0, count // step, form)]
    if count % step:
        tiles.append((count - step, 1, replace(form, unroll=1)))
    for first, some, of in tiles:
        places = [region(t, at + first * s, dtype=form.dtype) for (t, at), s in zip((data, out), steps, strict=True)]
        b.block(transposed(of), *places, imm(some), *strides)


for _anchor in ("transpose", "reshape", "strided_slice"):
    register_planned("arm_dsp.transpose", _anchor, plan, lower, plevel=14, several=_anchor != "transpose")
