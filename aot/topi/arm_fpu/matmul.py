"""Products of two float32 matrices, neither of them constant: two rows by eight columns, in the reference's order of addition.

Eight columns of the right matrix at a time are copied to scratch memory, 32 bytes per row, so that they are adjacent; all rows of
the left matrix are then multiplied by them.  A left matrix that is stored by columns is first copied as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from math import prod
from typing import Any

import numpy as np

from aot.ir.op import Op
from aot.op.nn.dense import BatchMatmulAttrs
from aot.relay.expr import Constant, tensor_type
from aot.relay.expr import Var as Tensor
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, Var, imm
from aot.tir.intrin import BlockText, TensorIntrin
from aot.topi.arm_fpu.dot import CHANNELS, NEAR, REGISTERS, DotForm, Text, dot, float_operands, vector, waits
from aot.topi.arm_fpu.layer import (
    UNROLL,
    FloatIo,
    FloatLayer,
    bias_of,
    register_forms,
    residual_bounds,
    supports_epilogue,
    unroll_of,
    with_relu,
)
from aot.topi.intrin.asm_text import Operands, Repeat, asm, block_of, count_instructions
from aot.topi.layer.fused import EPILOGUE_INSTRUCTIONS
from aot.topi.layer.im2col import Axis
from aot.topi.strategy import Group, Lowered

_TOGETHER = 8
"""Numbers per load if they are stored to separate places."""


@dataclass(frozen=True, slots=True)
class ColumnsForm:
    """`channels` neighbouring columns of `unroll` rows per iteration."""

    channels: int
    unroll: int

    @property
    def name(self) -> str:
        return f"columns_{self.channels}_u{self.unroll}"

    @property
    def body(self) -> Text:
        numbers = vector(0, self.channels)
        row: Text = [f"vldmia %[x], {numbers}", "add %[x], %[x], %[step]", f"vstmia %[o]!, {numbers}"]
        return [Repeat(self.unroll, row), "subs %[trips], %[trips], #1", "bne 1b"]

    def text(self) -> Text:
        return ["1:", *self.body]


@dataclass(frozen=True, slots=True)
class SpreadForm:
    """Copies adjacent numbers to places `near` numbers apart (None: `step` apart); `remainder` numbers follow the iterations of
    `_TOGETHER`; without `loop` there are no iterations.
    """

    near: int | None
    remainder: int
    loop: bool

    @property
    def name(self) -> str:
        return f"spread_{'far' if self.near is None else self.near}_rest{self.remainder}" + "_once" * (not self.loop)

    @property
    def body(self) -> Text:
        return [*self._numbers(_TOGETHER), "subs %[trips], %[trips], #1", "bne 1b"] if self.loop else []

    def _numbers(self, count: int) -> Text:
        text: Text = [f"vldmia %[x]!, {vector(0, count)}"]
        if self.near is None:
            return text + [line for i in range(count) for line in (f"vstr.32 s{i}, [%[o]]", "add %[o], %[o], %[step]")]
        text += [f"vstr.32 s{i}, [%[o], #{4 * self.near * i}]" for i in range(count)]
        return [*text, f"add %[o], %[o], #{4 * self.near * count}"]

    @property
    def last(self) -> Text:
        return self._numbers(self.remainder) if self.remainder else []

    def text(self) -> Text:
        return [*(["1:"] * self.loop), *self.body, *self.last]


def spread_form(count: int, step: int) -> SpreadForm:
    """The form for `count` numbers that are stored `step` apart."""
    near = 4 * step * (_TOGETHER - 1) <= NEAR
    return SpreadForm(step if near else None, count % _TOGETHER, count >= _TOGETHER)


@cache
def columns(form: ColumnsForm) -> TensorIntrin:
    """out[r * channels + c] = x[r * step + c] for r < trips * unroll, c < channels.

    Operands: x and out float32; trips; step.
    """
    b = IRBuilder(form.name)
    x, out = float_operands(b, "x")
    trips, step = Var("trips"), Var("step")
    with b.for_("r", trips * form.unroll) as r:
        for c in range(form.channels):
            b.store(out, r * form.channels + c, x[r * step + c])
    return block_of(b, "arm_fpu", lambda ops: _emit(form.text(), ops), trips, step, requires="vfp")


@cache
def spread(form: SpreadForm) -> TensorIntrin:
    """out[i * step] = x[i] for i < trips * _TOGETHER + remainder.

    Operands: x and out float32; trips and step, if the form has them.
    """
    b = IRBuilder(form.name)
    x, out = float_operands(b, "x")
    trips, step = Var("trips"), Var("step")
    with b.for_("i", (trips * _TOGETHER if form.loop else 0) + form.remainder) as i:
        b.store(out, i * (step if form.near is None else form.near), x[i])
    scalars = (*([trips] if form.loop else []), *([step] if form.near is None else []))
    return block_of(b, "arm_fpu", lambda ops: _emit(form.text(), ops), *scalars, requires="vfp")


def _emit(text: Text, operands: Operands) -> BlockText:
    after = [f"const int32_t aot_step = 4 * {operands['step'].value};"] if "step" in operands else []
    ins, counter = {"step": "aot_step"} if after else {}, "trips" * ("trips" in operands)
    return asm(operands, text, "x >o=out", ins, counter=counter, after=after, clobbers=REGISTERS)


def price(form: ColumnsForm | SpreadForm, trips: int) -> tuple[int, int]:
    """Instructions per execution, including the code around it, and cycles on a Cortex-M4."""
    last: Text = form.last if isinstance(form, SpreadForm) else []
    total = 10 + trips * count_instructions(form.body) + count_instructions(last)
    return total, total + 4 + trips * (waits(form.body) + 1) + waits(last)


_AROUND = np.array([16, 24])
"""Instructions and cycles around a block of two rows by eight columns."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A leading dimension: its extent, and elements from one left and right matrix to the next (0 if all share one matrix)."""

    extent: int
    left: int
    right: int


@dataclass(frozen=True, slots=True)
class Plan:
    """out[.., m, n] = clamp(sum over k of left[.., m, k] * right[.., k, n] + bias[n]), followed by an epilogue.

    `by_column`: left is [.., k, m]; `by_row`: right is [.., n, k].  The layer's data are the left matrices; the right ones are
    not part of it.
    """

    layer: FloatLayer
    right: Tensor
    batches: tuple[Batch, ...]
    extents: tuple[int, int, int]
    by_column: bool
    by_row: bool

    @property
    def counts(self) -> list[int]:
        """Columns of each block."""
        whole, remainder = divmod(self.extents[2], CHANNELS)
        return [CHANNELS] * whole + [remainder] * (remainder > 0)

    @property
    def is_packed(self) -> bool:
        """Whether the right matrix already is one block in the layout that `dot` reads."""
        return not self.by_row and self.extents[2] <= CHANNELS

    def form(self, rows: int, count: int, *, fused: bool) -> DotForm:
        depth = self.extents[1]
        unroll = unroll_of(depth)
        loop = depth > unroll + UNROLL
        remainder = depth % unroll if loop else depth - unroll
        return DotForm(rows, count, fused, unroll, remainder, loop, False, self.layer.clamp)

    def packing(self, count: int) -> tuple[ColumnsForm | SpreadForm, int, int]:
        """How `count` columns are copied: the block, its iterations, how often it runs."""
        depth = self.extents[1]
        if self.by_row:
            return spread_form(depth, count), depth // 8, count
        unroll = next(u for u in (4, 3, 2, 1) if depth % u == 0)
        return ColumnsForm(count, unroll), depth // unroll, 1

    def price(self, *, fused: bool) -> tuple[int, int]:
        """Instructions and cycles."""
        m, k, _ = self.extents
        total = np.array([0.0, 0.0])
        if self.by_column:
            total += k * np.array(price(spread_form(m, k), m // 8))
        for count in self.counts:
            form, trips, times = self.packing(count)
            total += 0 if self.is_packed else times * np.array(price(form, trips))
            for rows, tiles in ((2, m // 2), (1, m % 2)):
                block = self.form(rows, count, fused=fused)
                iterations = (k - block.remainder) // block.unroll if block.loop else 1
                total += tiles * (np.array(block.instructions(runs=1, trips=iterations)) + _AROUND)
        layer = self.layer
        epilogue = 5 if residual_bounds(layer) is not None else EPILOGUE_INSTRUCTIONS * len(layer.epilogue)
        total = 20 + epilogue * layer.out_type.size + prod(b.extent for b in self.batches) * (total + 12)
        count, cycles = map(int, total)
        return count, cycles


def plan(group: Group) -> Plan | None:
    """Layers whose two matrices are operands of the group, with a constant bias and an epilogue as in other layers."""
    anchor = group.anchor
    if not isinstance(anchor.op, Op):
        return None
    left, right, *others = anchor.args
    if not isinstance(left, Tensor) or not isinstance(right, Tensor):
        return None
    arrays = [c.data for c in others if isinstance(c, Constant)]
    if left.type.dtype != "float32" or right.type.dtype != "float32" or len(arrays) < len(others):
        return None
    bounds = (anchor.attrs.lo, anchor.attrs.hi) if anchor.op.name == "nn.dense_float" else (None, None)
    (lo, hi), head, epilogue = with_relu(bounds, anchor, group.followers)
    out = tensor_type(anchor)
    out_type, bias, nothing = (
        tensor_type(epilogue[-1]) if epilogue else out,
        bias_of(arrays, out.shape[-1]),
        np.zeros(0, np.float32),
    )
    depth = left.type.shape[-2 if anchor.op.name == "nn.batch_matmul" and anchor.attrs.adj_x else -1]
    axes = (Axis(1, 1), Axis(out.size // bias.size, out.size // bias.size))
    layer = FloatLayer(anchor, head, left, nothing, bias, lo, hi, epilogue, out_type, 1, *axes, depth, out.size * depth)
    if not supports_epilogue(layer) or any(arg is right for call in epilogue for arg in call.args):
        return None
    if anchor.op.name == "nn.batch_matmul":
        return _batches(layer, right)
    return Plan(layer, right, (), (left.type.shape[0], depth, bias.size), False, True)


def _batches(layer: FloatLayer, right: Tensor) -> Plan:
    attrs: BatchMatmulAttrs = layer.anchor.attrs
    anchor, left = layer.anchor, layer.data
    *lead, m, n = tensor_type(anchor).shape
    steps = [_steps(v.type.shape, len(lead)) for v in (left, right)]
    batches: tuple[Batch, ...] = tuple(map(Batch, lead, *steps))
    if not attrs.adj_x and not any(b.right for b in batches):
        batches, m = (), prod(left.type.shape[:-1])  # all rows of all left matrices share one right matrix
    return Plan(layer, right, batches, (m, layer.depth, n), attrs.adj_x, attrs.adj_y)


def _steps(shape: tuple[int, ...], rank: int) -> list[int]:
    """Elements from one matrix to the next along each of `rank` leading dimensions."""
    own = (1,) * (rank + 2 - len(shape)) + shape
    return [0 if own[i] == 1 else prod(own[i + 1 :]) for i in range(rank)]


class _Kernel:
    def __init__(self, b: IRBuilder, group: Group, plan: Plan, *, fused: bool) -> None:
        self.b, self.plan, self._fused = b, plan, fused
        self.io = FloatIo(b, group, plan.layer, run=2 * CHANNELS, weight=plan.right)
        self._left, self._right = self.io.data, self.io.weight or self.io.data  # a matrix times itself is a single buffer
        self._bias = self.io.stream(plan.layer.bias)
        m, k, n = plan.extents
        self._rows = b.scratch("rows", (m * k,), "float32") if plan.by_column else None
        self._columns = None if plan.is_packed else b.scratch("columns", (k * min(n, CHANNELS),), "float32")
        self.code = 80

    def emit(self) -> None:
        b, (m, k, _) = self.b, self.plan.extents
        with ExitStack() as loops:
            left: Expr = imm(0)
            right: Expr = imm(0)
            out: Expr = imm(0)
            for i, batch in enumerate(self.plan.batches):
                index = loops.enter_context(b.for_(f"i{i}", batch.extent))
                left, right, out = left + index * batch.left, right + index * batch.right, out * batch.extent + index
            left, right, out = b.let("left", left), b.let("right", right), b.let("result", out * m)
            rows: tuple[Buffer, Expr] = (self._left, left)
            if self._rows is not None:
                form = spread_form(m, k)
                with b.for_("k", k) as each:
                    self._spread(form, region(self._left, left + each * m), region(self._rows, each), m // 8, k)
                rows = (self._rows, imm(0))
                self.code += 40 + 4 * count_instructions(form.text())
            for count, first, blocks in self._blocks():
                with b.for_("n", blocks) as block:
                    self._block(rows, right, b.let("column", block * CHANNELS + first), out, count)

    def _blocks(self) -> Iterator[tuple[int, int, int]]:
        """For each size of blocks of columns: the size, the first column, the number of blocks."""
        whole, remainder = divmod(self.plan.extents[2], CHANNELS)
        if whole:
            yield CHANNELS, 0, whole
        if remainder:
            yield remainder, whole * CHANNELS, 1

    def _spread(self, form: SpreadForm, source: Any, to: Any, trips: int, step: int) -> None:
        numbers = [imm(trips)] * form.loop + [imm(step)] * (form.near is None)
        self.b.block(spread(form), source, to, *numbers)

    def _block(self, rows: tuple[Buffer, Expr], right: Expr, column: Expr, out: Expr, count: int) -> None:
        """Compute all rows of `count` result columns; their first row is `out`."""
        b, (m, k, _) = self.b, self.plan.extents
        weights = region(self._right, right)
        if self._columns is not None:
            self._pack(right, column, count)
            weights = region(self._columns)
        data, first = rows
        for height, tiles, start in ((2, m // 2, 0), (1, m % 2, m - 1)):
            if not tiles:
                continue
            form = self.plan.form(height, count, fused=self._fused)
            self.code += 60 + 4 * count_instructions(form.text())
            with b.for_("m", tiles) as tile:
                row = b.let("row", tile * 2 + start)
                sources = [region(data, first + (row + p) * k) for p in range(height)]
                to, step = self.io.target(out + row, column, count)
                numbers = [imm(step)] * (height == 2) + [imm((k - form.remainder) // form.unroll)] * form.loop
                b.block(dot(form), *sources, weights, region(self._bias, column), to, *numbers)
                self.io.finish(out + row, column, pixels=height, count=count)

    def _pack(self, right: Expr, column: Expr, count: int) -> None:
        """Copy `count` columns of the right matrix to scratch memory."""
        b, (_, k, n) = self.b, self.plan.extents
        assert self._columns is not None
        form, trips, _ = self.plan.packing(count)
        self.code += 40 + 4 * count_instructions(form.text())
        if isinstance(form, ColumnsForm):
            b.block(columns(form), region(self._right, right + column), region(self._columns), imm(trips), imm(n))
            return
        with b.for_("c", count) as c:
            self._spread(form, region(self._right, right + (column + c) * k), region(self._columns, c), trips, count)


def lower(group: Group, _target: Target, name: str, plan: Plan, *, form: str) -> Lowered:
    b = IRBuilder(name)
    kernel = _Kernel(b, group, plan, fused=form == "vmla")
    kernel.emit()
    return kernel.io.lowered(f"arm_fpu.matmul_{form}", plan.price(fused=form == "vmla"), kernel.code, unroll=UNROLL)


register_forms("matmul", "nn.batch_matmul", plan, lower, plevel=25)
register_forms("dense_matmul", "nn.dense_float", plan, lower, plevel=25)
