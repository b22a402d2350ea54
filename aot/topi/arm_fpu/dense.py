"""Fully connected float32 layers with one row of data, and products of two float32 matrices, neither of them constant."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from math import prod
from typing import Any

import numpy as np

from aot.ir.op import Array, Op
from aot.op.nn.dense import BatchMatmulAttrs
from aot.relay.expr import Constant, tensor_type
from aot.relay.expr import Var as Tensor
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, Var, imm
from aot.tir.intrin import BlockText, TensorIntrin
from aot.topi.arm_fpu.dot import (
    CHANNELS,
    FLOATS,
    LARGEST,
    MOST_CHANNELS,
    NEAR,
    REGISTERS,
    Clamp,
    DotForm,
    Text,
    dot,
    exceeds,
    float_operands,
    one_by_one,
    products_of_pixel,
    vector,
    waits,
)
from aot.topi.arm_fpu.layer import (
    UNROLL,
    FloatIo,
    FloatLayer,
    bias_of,
    epilogue_instructions,
    match_float_layer,
    register_forms,
    supports_epilogue,
    unroll_of,
    with_relu,
)
from aot.topi.intrin.asm_text import Operands, Repeat, asm, block_of, count_instructions
from aot.topi.layer.im2col import Axis
from aot.topi.layer.planes import block_sizes
from aot.topi.strategy import Group, Lowered

# Products of two float32 matrices, neither of them constant: two rows by eight columns, in the reference's order of addition.
#
# Eight columns of the right matrix at a time are copied to scratch memory, 32 bytes per row, so that they are adjacent; all rows
# of the left matrix are then multiplied by them.  A left matrix that is stored by columns is first copied as a whole.


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
    return block_of(b, "arm_fpu", lambda ops: _emit_copy(form.text(), ops), trips, step, requires="vfp")


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
    return block_of(b, "arm_fpu", lambda ops: _emit_copy(form.text(), ops), *scalars, requires="vfp")


def _emit_copy(text: Text, operands: Operands) -> BlockText:
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
        return block_sizes(self.extents[2], CHANNELS)

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

    def price(self, *, fused: bool) -> Array:
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
        priced: Array = 20 + epilogue_instructions(self.layer) + prod(b.extent for b in self.batches) * (total + 12)
        return priced


def plan_matmul(group: Group) -> Plan | None:
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
            counts = self.plan.counts
            for count in dict.fromkeys(counts):
                with b.for_("n", counts.count(count)) as block:
                    first = CHANNELS * counts.index(count)
                    self._block(rows, right, b.let("column", block * CHANNELS + first), out, count)

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


def lower_matmul(group: Group, _target: Target, name: str, plan: Plan, *, form: str) -> Lowered:
    b = IRBuilder(name)
    kernel = _Kernel(b, group, plan, fused=form == "vmla")
    kernel.emit()
    return kernel.io.lowered(f"arm_fpu.matmul_{form}", plan.price(fused=form == "vmla"), kernel.code, unroll=UNROLL)


register_forms("matmul", "nn.batch_matmul", plan_matmul, lower_matmul, plevel=25)
register_forms("dense_matmul", "nn.dense_float", plan_matmul, lower_matmul, plevel=25)


# Fully connected float32 layers with one row of data: as many channels at a time as registers allow, in one block of assembly.
#
# Weights come in loads that fill all remaining registers, regardless of the tap that they belong to; the block's bias follows.


_FOUR = ("r4", "r5", "r6", "r8")
"""Core registers of results that are stored together; r7 is left out, as it is the frame pointer of some builds."""


@dataclass(frozen=True, slots=True)
class RowDotForm:
    """`first` taps, then, with a `loop`, `unroll` taps per iteration; `together`: taps whose data are loaded at once.

    `several`: blocks of `channels` channels, one after the other.  `screened`: one test of the data at the start replaces the
    test of each block's results for numbers that are not finite: the sum of the data's squares bounds each number, and hence the
    results if the weights are small enough (see `bounded`).  Not `biased`: no bias follows the weights, and sums begin with 0,
    because a sum that began with a product might be -0.
    """

    channels: int
    fused: bool
    first: int
    unroll: int
    loop: bool
    together: int
    several: bool
    screened: bool
    biased: bool
    clamp: Clamp

    @property
    def name(self) -> str:
        size = f"row_{self.channels}_{'vmla' if self.fused else 'vmul'}_{self.first}"
        unrolled = f"_u{self.unroll}" if self.loop else ""
        kind = f"{size}{unrolled}_x{self.together}" + "_several" * self.several
        return kind + "_screened" * self.screened + "_unbiased" * (not self.biased) + self.clamp.name

    @property
    def scalars(self) -> tuple[str, ...]:
        """The numbers that a block of the form has as operands."""
        return (*(["trips"] * self.loop), *(["blocks"] * self.several))

    @property
    def _begins(self) -> bool:
        """Whether sums begin with the products of the first tap."""
        return self.biased and self.first > 0

    @property
    def _data(self) -> int:
        """The first register of data."""
        return FLOATS - self.together

    @property
    def _stays(self) -> bool:
        """Whether the data are loaded once for all blocks, because no bias is loaded over them."""
        return not self.loop and self.first <= self.together and 2 * self.channels <= self._data

    def taps(self, count: int, *, begins: bool = False) -> list[str]:
        """The products of `count` taps; `begins`: the sums begin with the first tap's products."""
        text: list[str] = []
        for done in range(0, count, self.together):
            size = min(self.together, count - done)
            text += [] if self._stays else self._load(size)
            first = begins and done == 0
            text += products_of_pixel(self.channels, size, data=self._data, first=first, fused=self.fused)
        return text

    def _load(self, taps: int) -> list[str]:
        return [f"vldmia %[x]!, {vector(self._data, taps)}"]

    def _price(self, taps: int, *, begins: bool = False) -> Array:
        """Instructions and cycles of `taps`: a load of N numbers takes 1 + N cycles, VMLA 3."""
        most, products = self._data - self.channels, taps * self.channels
        sums = products - begins * self.channels
        chunks = [min(self.together, taps - done) for done in range(0, taps, self.together)]
        loads = sum(-(-n * self.channels // most) for n in chunks) + (0 if self._stays else len(chunks))
        count = products + loads + (0 if self.fused else sums)
        waits_for = products + (0 if self._stays else taps) + (2 * sums if self.fused else 0)
        return np.array([count, count + waits_for])

    @property
    def start(self) -> Text:
        """The code before all blocks."""
        text: Text = [*self._load(self.first)] if self._stays else []
        return text + self._screen if self.screened else text

    @property
    def _screen(self) -> Text:
        """The exponent of the sum of the data's squares."""
        many, sums = 16, "s16"
        text: Text = []
        if self._stays:
            text += self._squares(self._data, self.first, sums := "s0", begins=True)
        for done in range(0, 0 if self._stays else self.first, many):
            size = min(many, self.first - done)
            text += [f"vldmia %[x]!, {vector(0, size)}", *self._squares(0, size, sums, begins=done == 0)]
        back: Text = [] if self._stays else [f"sub %[x], %[x], #{4 * self.first}"]
        return [*text, *back, f"vmov %[f], {sums}", "ubfx %[f], %[f], #23, #8"]

    @staticmethod
    def _squares(first: int, count: int, to: str, *, begins: bool) -> Text:
        return [f"{'vmul' if begins and not i else 'vmla'}.f32 {to}, s{first + i}, s{first + i}" for i in range(count)]

    @property
    def _zeros(self) -> Text:
        return ["mov %[t], #0", *(f"vmov d{i}, %[t], %[t]" for i in range((self.channels + 1) // 2))]

    @property
    def bias(self) -> Text:
        """Add the bias to the sums, if there is one."""
        free, n = self.channels, self.channels * self.biased
        return [] if not n else [f"vldmia %[w]!, {vector(free, n)}", *(f"vadd.f32 s{c}, s{c}, s{free + c}" for c in range(n))]

    @property
    def _next(self) -> Text:
        back = "%[span]" if self.loop else f"#{4 * self.first}"
        rewind: Text = [] if self._stays else [f"sub %[x], %[x], {back}"]
        return [*rewind, "subs %[blocks], %[blocks], #1", "bne 1b"] if self.several else []

    @property
    def test(self) -> Text:
        """A comparison that gives "equal" if a result may not be finite."""
        if self.clamp.lo is None:
            return []
        return ["cmp %[f], #255"] if self.screened else exceeds(self.channels, self.channels, fused=self.fused)

    @property
    def stores(self) -> Text:
        """Stores of finite results, through core registers if they are rectified."""
        if not self.clamp.rectifies:
            return [f"vstmia %[o]!, {vector(0, self.channels)}"]
        text: Text = []
        for c in range(0, self.channels, 4):
            names = _FOUR[: self.channels - c]
            for i in range(0, len(names) - 1, 2):
                text.append(f"vmov {names[i]}, {names[i + 1]}, s{c + i}, s{c + i + 1}")
            if len(names) % 2:
                text.append(f"vmov {names[-1]}, s{c + len(names) - 1}")
            text += [f"bic {r}, {r}, {r}, asr #31" for r in names]
            text.append(f"stmia %[o]!, {{{', '.join(names)}}}" if len(names) > 1 else f"str {names[0]}, [%[o]], #4")
        return text

    @property
    def end(self) -> Text:
        """The end of a block, with branches around the code for results that are not finite."""
        if self.clamp.lo is None:
            return self.stores
        slow = one_by_one(self.clamp, "o", self.channels)
        if self.clamp.keeps:
            return [*self.stores, "bne 9f", f"sub %[o], %[o], #{4 * self.channels}", *slow, "9:"]
        return ["bne 8f", f"vstmia %[o], {vector(0, self.channels)}", *slow, "b 9f", "8:", *self.stores, "9:"]

    def text(self) -> Text:
        """The whole block."""
        sums: Text = [*([] if self._begins else self._zeros), *self.taps(self.first, begins=self._begins)]
        loop: Text = ["mov %[t], %[trips]", "2:", *self.taps(self.unroll), "subs %[t], %[t], #1", "bne 2b"] if self.loop else []
        block = [*sums, *loop, *self.bias, *self.test, *self.end, *self._next]
        return [*self.start, *(["1:"] * self.several), *block]

    def price(self, *, blocks: int, trips: int) -> tuple[int, int]:
        """Instructions per execution with finite results, and cycles on a Cortex-M4."""
        branch = np.array([2, 4])
        after, _ = _after(self.alike)
        block = after + self._price(self.first, begins=self._begins) + (0 if self._begins else _priced(self._zeros))
        if self.loop:
            block += 1 + trips * (self._price(self.unroll) + branch)
        if self.several:
            block += branch + (not self._stays)
        count, cycles = _priced(self.start) + blocks * block
        return int(count), int(cycles)

    @property
    def code(self) -> int:
        """Bytes of code."""
        taps = self._price(self.first, begins=self._begins)[0] + (3 + self._price(self.unroll)[0] if self.loop else 0)
        _, after = _after(self.alike)
        return 4 * int(taps + after + sum(map(count_instructions, (self.start, [] if self._begins else self._zeros, self._next))))

    @property
    def alike(self) -> RowDotForm:
        """A form that ends a block in the same way."""
        return replace(self, first=0, unroll=0, loop=False, together=0, several=False)


@cache
def _after(form: RowDotForm) -> tuple[Array, int]:
    """Instructions and cycles after a block's products if results are finite, and the number of all instructions there."""
    finite = _priced([*form.bias, *form.test, *form.stores]) + (0 if form.clamp.lo is None else np.array([1, 2]))
    return finite, count_instructions([*form.bias, *form.test, *form.end])


def _priced(text: Text) -> Array:
    """Instructions and cycles."""
    count, lines = count_instructions(text), [line for line in text if isinstance(line, str)]
    stored = sum(line.count(",") for line in lines if line.startswith("stmia")) + sum(line.startswith("str") for line in lines)
    pairs = sum(line.startswith("vmov r") and line.count(",") == 3 for line in lines)
    return np.array([count, count + waits(text) + stored + pairs])


def bounded(weights: Array, bias: Array) -> bool:
    """Whether results are finite whenever the sum of the data's squares is, for weights [taps, channels].

    Each number is then less than 2e19, so no sum exceeds that times the sum of its weights, with a margin for rounding.
    """
    most = np.abs(weights).sum(0, dtype=np.float64).max() * 2e19 + np.abs(bias, dtype=np.float64).max()
    return bool(most < LARGEST / 2)


@cache
def row_dot(form: RowDotForm) -> TensorIntrin:
    """out[n * channels + c] = clamp(sum over taps of x[k] * w[n, k, c] + w[n, taps, c]) for n < blocks, c < channels; without the
    last term if the form is not `biased`.

    Operands: x, w and out float32; then trips and blocks, if the form has them.
    """
    b = IRBuilder(form.name)
    x, w, out = float_operands(b, "x", "w")
    numbers = {name: Var(name) for name in form.scalars}
    taps = numbers["trips"] * form.unroll + form.first if form.loop else imm(form.first)
    acc = b.local("acc", (form.channels,), "float32")
    with b.for_("n", numbers.get("blocks", imm(1))) as n:
        start = b.let("start", n * ((taps + form.biased) * form.channels))
        for c in range(form.channels):
            b.store(acc, c, imm(0.0, "float32"))
        with b.for_("k", taps) as k:
            value = b.let("value", x[k])
            for c in range(form.channels):
                b.store(acc, c, acc[c] + value * w[start + k * form.channels + c])
        for c in range(form.channels):
            total = acc[c] + w[start + taps * form.channels + c] if form.biased else acc[c]
            b.store(out, n * form.channels + c, form.clamp.meaning(b, total))
    return block_of(b, "arm_fpu", lambda ops: _emit_row(form, ops), *numbers.values(), requires="vfp")


def _emit_row(form: RowDotForm, operands: Operands) -> BlockText:
    spoilt, span = ["t", *(["f"] * form.screened)], f"{4 * form.unroll} * aot_trips + {4 * form.first}"
    numbers = {"trips": operands["trips"].value} if form.loop else {}
    numbers |= {"span": span} if form.loop and form.several else {}
    return asm(
        operands, form.text(), "x w >o=out", {n: f"aot_{n}" for n in numbers}, counter="blocks" * form.several,
        before=[f"uint32_t {', '.join(f'aot_{n}' for n in spoilt)};"],
        after=[f"const int32_t aot_{n} = {value};" for n, value in numbers.items()],
        last=[f'[{n}] "=&r"(aot_{n})' for n in spoilt],
        clobbers=(*(_FOUR[: form.channels] if form.clamp.rectifies else ()), *REGISTERS),
    )  # fmt: skip


# Fully connected layers with one row of data: all channels in one or two blocks of assembly.
#
# No scratch memory.  Weights are four bytes each in flash, [channels / n][inputs][n], followed by the bias of these n channels.


OPERATOR = "nn.dense_float"


@dataclass(frozen=True, slots=True)
class Blocks:
    """`count` blocks of a form, each with `trips` iterations."""

    form: RowDotForm
    count: int
    trips: int

    @property
    def price(self) -> tuple[int, int]:
        return self.form.price(blocks=self.count, trips=self.trips)


LEAST_CHANNELS = 5
"""Fewest channels of a block, if the layer has more."""
MOST_PRODUCTS = 80
"""Most products per iteration of the loop over taps; up to twice as many are unrolled completely."""
HARDLY_MORE = 1.01
"""Factor by which a cost may exceed the least one."""
AROUND = 12
"""Instructions, and half the cycles, around a block of assembly."""


def plan_row(group: Group) -> FloatLayer | None:
    """Layers with one row of data, no epilogue, and a clamp that changes no or few finite results."""
    layer = match_float_layer(group, OPERATOR)
    if layer is None or layer.epilogue or layer.columns.out > 1:
        return None
    clamp = layer.clamp
    plain = (layer.lo, layer.hi) == (None, None)
    return layer if plain or clamp.keeps or (clamp.rectifies and clamp.hi != 6.0) else None


@dataclass(frozen=True, slots=True)
class RowLayer:
    """Everything that a schedule depends on; `small`: the weights are `bounded`."""

    depth: int
    channels: int
    clamp: Clamp
    fused: bool
    small: bool
    biased: bool

    def schedule(self) -> tuple[Blocks, ...]:
        """The blocks of all channels."""
        most = min(self.channels, MOST_CHANNELS)
        return self._best([self._split(each) for each in range(min(LEAST_CHANNELS, most), most + 1)])

    def _split(self, each: int) -> tuple[Blocks, ...]:
        count, remainder = divmod(self.channels, each)
        blocks = self._blocks(each, count, MOST_PRODUCTS)
        return (*blocks, *self._blocks(remainder, 1, 8 * remainder)) if remainder else blocks

    def _blocks(self, channels: int, count: int, most: int) -> tuple[Blocks, ...]:
        """Blocks of one size, with at most `most` products per iteration."""
        schedules, once = [], self.depth * channels <= 2 * most
        screens = (False, True) if self.small and once and count > 1 and self.clamp.lo is not None else (False,)
        for together in range(1, 1 + min(16, self.depth if once else max(4, most // channels))):
            unroll = together * max(1, most // (together * channels))
            trips, first = (0, self.depth) if once else divmod(self.depth, unroll)
            for screened in screens:
                several = count > 1
                form = RowDotForm(
                    channels, self.fused, first, unroll, not once, together, several, screened, self.biased, self.clamp
                )
                schedules.append((Blocks(form, count, trips),))
        return self._best(schedules)

    def _best(self, schedules: Sequence[tuple[Blocks, ...]]) -> tuple[Blocks, ...]:
        """The schedule with the least code among those within HARDLY_MORE of the fewest instructions or cycles."""
        cost = {blocks: sum(b.price[not self.fused] + AROUND for b in blocks) for blocks in schedules}
        most = HARDLY_MORE * min(cost.values())
        good = [blocks for blocks in schedules if cost[blocks] <= most]
        return min(good, key=lambda blocks: (sum(b.form.code for b in blocks), cost[blocks]))


@cache
def schedule(layer: RowLayer) -> tuple[Blocks, ...]:
    """The blocks of a layer."""
    return layer.schedule()


def pack(matrix: Array, bias: Array, blocks: tuple[Blocks, ...]) -> Array:
    """Each block's weights [taps][n], followed by its bias, if any."""
    sizes = [b.form.channels for b in blocks for _ in range(b.count)]
    ends = np.cumsum(sizes)
    rows = np.concatenate([matrix, bias[None]]) if blocks[0].form.biased else matrix
    return np.concatenate([rows[:, end - n : end].reshape(-1) for end, n in zip(ends, sizes, strict=True)])


def lower_row(group: Group, _target: Target, name: str, layer: FloatLayer, *, form: str) -> Lowered:
    b, weights = IRBuilder(name), layer.matrix
    small, biased = bounded(weights, layer.bias), bool(layer.bias.any())
    blocks = schedule(RowLayer(layer.depth, layer.channels, layer.clamp, form == "vmla", small, biased))
    io = FloatIo(b, group, layer, run=0)
    params = io.stream(pack(weights, layer.bias, blocks))
    done = 0
    for part in blocks:
        numbers = [imm(part.trips)] * part.form.loop + [imm(part.count)] * part.form.several
        b.block(
            row_dot(part.form), region(io.data), region(params, done * (layer.depth + biased)), region(io.out, done), *numbers
        )
        done += part.count * part.form.channels
    price = sum(p.price[0] + AROUND for p in blocks), sum(p.price[1] + 2 * AROUND for p in blocks)
    code = 16 + sum(p.form.code for p in blocks)
    return io.lowered(f"arm_fpu.dense_row_{form}", price, code, channels=blocks[0].form.channels)


register_forms("dense_row", OPERATOR, plan_row, lower_row, plevel=32)
