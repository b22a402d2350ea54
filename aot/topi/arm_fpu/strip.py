"""Depthwise convolutions of float32 in strips: one channel of a few result columns, from the first row of an image to the last.

Going down a strip, every number of the image is loaded once and used for all rows of results that need it; kernels that go row
by row (conv2d.py) load it, and the weights, once per row of taps.  Products and sums are separate instructions, which takes
fewer cycles than VMLA.

Windows have few taps and reach at most one column beyond the image.  They may reach further if a strip is as wide as the image:
then products with taps outside are left out.  No scratch memory.  Weights are four bytes each in flash, [channels][taps], each
channel's followed by its bias.  Results must not overlap the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import cycle, pairwise

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, Var, equal, imm, maximum, minimum, select
from aot.tir.intrin import BlockText, TensorIntrin
from aot.topi.arm_fpu.dot import (
    FLOATS,
    NEAR,
    REGISTERS,
    Clamp,
    Text,
    bits_of,
    compared,
    constant,
    float_operands,
    limited,
    limits,
    multiplied,
    positive,
    vector,
    waits,
)
from aot.topi.arm_fpu.layer import DEPTHWISE, FloatIo, FloatLayer, match_float_layer, on_fpu
from aot.topi.intrin.asm_text import AsmBlock, Operands, block_of, count_instructions
from aot.topi.strategy import Group, Lowered, register_planned

FAR = 4092
"""Bytes that LDR and STR reach forwards from a pointer."""


@dataclass(frozen=True, slots=True)
class StripForm:
    """`columns` adjacent results of windows of `taps` (rows, columns) with `strides`; the image has `depth` channels, the results
    have `channels`.

    `before` and `after`: rows by which the windows of the first and the last result reach beyond the image.  `left` and `right`:
    whether windows of some strip reach one column beyond it.  `outside`: columns on either side by which windows of the only
    strip reach beyond it.  The loop computes `rows_open` rows of results per iteration and begins with row number `start` of
    these; `loop` is False if all rows of results need rows beyond the image.
    """

    taps: tuple[int, int]
    strides: tuple[int, int]
    columns: int
    depth: int
    channels: int
    before: int
    after: int
    start: int
    loop: bool
    left: bool
    right: bool
    outside: tuple[int, int]
    clamp: Clamp

    @property
    def name(self) -> str:
        size = f"{self.taps[0]}x{self.taps[1]}_s{self.strides[0]}{self.strides[1]}_{self.columns}_depth{self.depth}"
        size += f"_channels{self.channels}" * (self.channels != self.depth)
        edges = f"_before{self.before}_after{self.after}" + "_left" * self.left + "_right" * self.right
        edges += "_outside{}_{}".format(*self.outside) * any(self.outside)
        rows = f"_start{self.start}" if self.loop else "_once"
        return f"strip_{size}{edges}{rows}{self.clamp.name}"

    @property
    def rows_open(self) -> int:
        """Rows of results that a row of the image contributes to."""
        return -(-self.taps[0] // self.strides[0])

    @property
    def remainder(self) -> int:
        """Rows of results after the loop: those that need rows below the image."""
        return -(-self.after // self.strides[0])

    @property
    def width(self) -> int:
        """Columns of the image that a strip reads."""
        return (self.columns - 1) * self.strides[1] + self.taps[1] - sum(self.outside)

    @property
    def origin(self) -> int:
        """The column to which the data pointer points, counted from the first column that has its own pointer."""
        return min((self.width - self.left - self.right - 1) // 2, NEAR // (4 * self.depth))

    @property
    def _bias(self) -> int:
        return self.taps[0] * self.taps[1]

    @property
    def _data(self) -> int:
        return self._bias + 1 + self.rows_open * self.columns

    @property
    def _spare(self) -> int:
        """Registers for products."""
        return min(4, FLOATS - self._data - self.width)

    @property
    def fits(self) -> bool:
        """Whether registers and offsets suffice."""
        middle = self.width - self.left - self.right
        reach = max((middle - 1 - self.origin) * 4 * self.depth, (self.columns - 1) * 4 * self.channels)
        return self._spare >= 2 and middle > 0 and reach <= FAR

    def text(self) -> Text:
        """The whole strip."""
        text: Text = [*self.begin(), *(["b 3f"] if self.loop and self.start else []), *self.body(), *self.last()]
        out_of_line = [line for i in range(self.rows_open * self.loop + self.remainder) for line in self._exceptions(i)]
        return [*text, *(["b 9f", *out_of_line, "9:"] if out_of_line else [])]

    def body(self) -> Text:
        """The loop."""
        if not self.loop:
            return []
        text: Text = ["2:"]
        for phase in range(self.rows_open):
            text += ["3:"] * (phase > 0 and phase == self.start) + self.step(phase)
        return [*text, "subs %[n], %[n], #1", "bne 2b"]

    def begin(self) -> Text:
        """The code before the loop: load weights and bias (their pointer is a temporary afterwards), and 6 for ReLU6; process the
        rows of the image before the newest rows of the first row of results.
        """
        text: Text = [f"vldmia %[w], {vector(0, self._bias + 1)}"]
        text += constant("%[w]", bits_of(6.0)) if self.clamp.rectifies and self.clamp.hi == 6.0 else []
        started: set[int] = set()
        for v in range(self.before, self.taps[0] - self.strides[0]):
            text += self._row(v, self.start, started)
        expected = {(self.start + d) % self.rows_open for d in range(self.rows_open) if d * self.strides[0] < self._new}
        missing = sorted(expected - started)
        if missing:
            text.append("mov %[t], #0")
        return text + [f"vmov s{self._sum(phase, p)}, %[t]" for phase in missing for p in range(self.columns)]

    @property
    def _new(self) -> int:
        """The first tap row that reads one of the newest rows."""
        return self.taps[0] - self.strides[0]

    def step(self, phase: int) -> Text:
        """A row of results: process its newest image rows, which also begin or continue the next results; `phase`: its sums."""
        text: Text = []
        for j in range(self.strides[0]):
            text += self._row(self._new + j, phase, None)
        return text + self._finish(phase, phase)

    def last(self) -> Text:
        """The rows of results whose windows reach below the image."""
        text: Text = []
        for i in range(self.remainder):
            left = self.remainder * self.strides[0] - self.after - i * self.strides[0]  # rows of the image from here on
            phase = i % self.rows_open if self.loop else (self.start + i) % self.rows_open
            for j in range(min(self.strides[0], max(0, left))):
                text += self._row(self._new + j, phase, None, live=self.remainder - i)
            text += self._finish(phase, self.rows_open * self.loop + i)
        return text

    def _sum(self, phase: int, p: int) -> int:
        return self._bias + 1 + phase % self.rows_open * self.columns + p

    def inside(self, p: int) -> range:
        """The columns of taps of result `p` that are not `outside`."""
        before, first = self.outside[0], p * self.strides[1]
        return range(max(0, before - first), min(self.taps[1], before + self.width - first))

    def _loads(self) -> Text:
        """Load a row of the image and advance the pointers to the next."""
        text: Text = []
        for c in range(self.width):
            into = f"s{self._data + c}"
            if (self.left and c == 0) or (self.right and c == self.width - 1):
                text.append(f"vldr.32 {into}, [%[{'l' if self.left and c == 0 else 'r'}]]")
                continue
            offset = (c - self.left - self.origin) * 4 * self.depth
            if offset <= NEAR:
                text.append(f"vldr.32 {into}, [%[x], #{offset}]")
            else:
                text += [f"ldr %[t], [%[x], #{offset}]", f"vmov {into}, %[t]"]
        moved = [("x", "row"), *([("l", "lrow")] * self.left), *([("r", "rrow")] * self.right)]
        return text + [f"add %[{p}], %[{p}], %[{step}]" for p, step in moved]

    def _row(self, ky: int, phase: int, started: set[int] | None, *, live: int | None = None) -> Text:
        """Process a row of the image: tap row `ky` of the sums `phase`, and later tap rows of the sums after it.

        `started`: sums that have begun; None: all but those at tap row 0.  `live`: rows of results from `phase` on.
        """
        reach = min(ky // self.strides[0] + 1, self.rows_open if live is None else live)
        targets = [(d, ky - d * self.strides[0]) for d in range(reach)]
        begun = {d: tap > 0 if started is None else (phase + d) % self.rows_open in started for d, tap in targets}
        inside = [self.inside(p) for p in range(self.columns)]
        first = [columns[0] for columns in inside]
        data = self._data - self.outside[0]
        terms = [
            (self._sum(phase + d, p), tap * self.taps[1] + kx, data + p * self.strides[1] + kx, kx == first[p] and not begun[d])
            for kx in range(self.taps[1])
            for d, tap in targets
            for p in range(self.columns)
            if kx in inside[p]
        ]
        if started is not None:
            started.update((phase + d) % self.rows_open for d, _ in targets)
        spare = cycle(range(self._data + self.width, self._data + self.width + self._spare))
        places = [(acc, acc if is_first else next(spare), x, w, is_first) for acc, w, x, is_first in terms]
        return [*self._loads(), *multiplied(places, fused=False, lag=self._spare // 2)]

    def _finish(self, phase: int, place: int) -> Text:
        """Bias, clamp and stores of a row of results; `place` makes its labels unique."""
        sums = [self._sum(phase, p) for p in range(self.columns)]
        text: Text = [f"vadd.f32 s{a}, s{a}, s{self._bias}" for a in sums]
        next_row: Text = ["add %[o], %[o], %[orow]"]
        if self.clamp.lo is None or self.clamp.hi is None:
            return text + self._raw(sums) + next_row
        if not (self.clamp.keeps or self.clamp.rectifies):
            return text + self._raw(sums) + self._one_by_one(sums, place) + next_row
        stores = self._raw(sums) if self.clamp.keeps else self._rectified(sums)
        return text + self._total(sums) + compared(self._data) + [f"beq {20 + place}f"] + stores + [f"{60 + place}:"] + next_row

    def _exceptions(self, place: int) -> Text:
        """Out-of-line code for a row of results with a number that is not finite."""
        if not (self.clamp.keeps or self.clamp.rectifies) or self.clamp.lo is None:
            return []
        at = place - self.rows_open * self.loop
        phase = place if at < 0 else at % self.rows_open if self.loop else (self.start + at) % self.rows_open
        sums = [self._sum(phase, p) for p in range(self.columns)]
        return [f"{20 + place}:", *self._raw(sums), *self._one_by_one(sums, place), f"b {60 + place}b"]

    def _total(self, sums: Sequence[int]) -> Text:
        """Compute into the first data register a number that is finite only if all results are."""
        d, n = self._data, len(sums)
        text: Text = [f"vadd.f32 s{d + i // 2}, s{sums[i]}, s{sums[i + 1]}" for i in range(0, n - 1, 2)]
        if n % 2:
            text.append(f"vadd.f32 s{d}, s{d}, s{sums[-1]}")
        left = n // 2
        while left > 1:
            text += [f"vadd.f32 s{d + i}, s{d + i}, s{d + left - 1 - i}" for i in range(left // 2)]
            left -= left // 2
        return text

    def _raw(self, sums: Sequence[int]) -> Text:
        text: Text = []
        for p, a in enumerate(sums):
            offset = 4 * self.channels * p
            far = [f"vmov %[t], s{a}", f"str %[t], [%[o], #{offset}]"]
            text += [f"vstr.32 s{a}, [%[o], #{offset}]"] if offset <= NEAR else far
        return text

    def _rectified(self, sums: Sequence[int]) -> Text:
        """Store finite results through core registers."""
        text: Text = []
        for p in range(0, len(sums), 2):
            pair = [("t", p), ("u", p + 1)][: len(sums) - p]
            both = f"vmov %[t], %[u], s{sums[p]}, s{sums[p] + 1}"
            text.append(both if len(pair) == 2 else f"vmov %[t], s{sums[p]}")
            text += [line for r, _ in pair for line in positive(self.clamp, r)]
            text += [f"str %[{r}], [%[o], #{4 * self.channels * at}]" for r, at in pair]
        return text

    def _one_by_one(self, sums: Sequence[int], place: int) -> Text:
        """Clamp stored results in place, as the operators' te rules do."""
        low, high, value = sums[0], sums[1], self._data
        text: Text = [*limits(self.clamp, low, high), "mov %[u], %[o]", f"mov %[t], #{self.columns}"]
        text += [f"{100 + place}: vldr.32 s{value}, [%[u]]", *limited(value, low, high)]
        text += [f"vstr.32 s{value}, [%[u]]", f"add %[u], %[u], #{4 * self.channels}"]
        return [*text, "subs %[t], %[t], #1", f"bne {100 + place}b"]


# Strips of depthwise layers: the meaning of a StripForm, its C text and its cost.


@cache
def strip(form: StripForm) -> TensorIntrin:
    """out[y * orow + p * channels] = clamp(sum over the taps inside the image of x * w + bias) for p < columns and all rows y.

    Operands: x float32, the first number of the strip's first column inside the image; `row`: elements to the next row; w
    float32[taps + 1], the channel's weights and bias; out; row; orow; trips of the loop; left and right, 1 if the strip's first
    or last column is outside of the image.
    """
    (kh, kw), (sh, sw), d = form.taps, form.strides, form.depth
    b = IRBuilder(form.name)
    x, w, out = float_operands(b, "x", "w")
    row, orow, trips, left, right = scalars = tuple(Var(n) for n in ("row", "orow", "trips", "left", "right"))
    rows = _rows(form, trips)
    height = (rows - 1) * sh + kh - form.before - form.after  # of the image
    sums = b.local("sum", (1,), "float32")
    with b.for_("y", rows) as y:
        for p in range(form.columns):
            b.store(sums, 0, imm(0.0, "float32"))
            at = b.let("at", y * sh - form.before)
            with b.for_("ky", b.let("last", minimum(height - at, kh)), start=b.let("first", maximum(0 - at, 0))) as ky:
                inside = form.inside(p)
                first: Expr = left if p == 0 and form.left else imm(inside.start)
                last: Expr = imm(kw) - right if p == form.columns - 1 and form.right else imm(inside.stop)
                with b.for_("kx", last, start=first) as kx:
                    column = (kx + p * sw - left) if form.left else kx + (p * sw - form.outside[0])
                    b.store(sums, 0, sums[0] + x[(at + ky) * row + column * d] * w[ky * kw + kx])
            b.store(out, y * orow + p * form.channels, form.clamp.meaning(b, sums[0] + w[kh * kw]))
    return block_of(b, "arm_fpu", lambda ops: _emit(form, ops), *scalars, requires="vfp")


def _rows(form: StripForm, trips: Expr) -> Expr:
    """Rows of results."""
    return trips * form.rows_open - form.start + form.remainder if form.loop else imm(form.remainder)


def _emit(form: StripForm, operands: Operands) -> BlockText:
    left, right = operands["left"].value, operands["right"].value
    column = 4 * form.depth
    first = f"((const char *){operands['x'].pointer})"
    inside = f"{first} + {column} * (1 - {left})" if form.left else first
    declarations = [
        *(["static const float aot_zero = 0.0f;"] if form.left or form.right else []),
        f"const int32_t aot_row = 4 * {operands['row'].value}, aot_orow = 4 * {operands['orow'].value};",
        f"const void *aot_x = {inside} + {column * form.origin};",
        f"const void *aot_w = {operands['w'].pointer};",
        f"void *aot_o = {operands['out'].pointer};",
        "uint32_t aot_t, aot_u;",
    ]
    if form.loop:
        declarations.append(f"int32_t aot_n = {operands['trips'].value};")
    moved, steps = ["x", "w", "o"], ["row", "orow"]
    for edge, name, outside, place in (
        (form.left, "l", left, first),
        (form.right, "r", right, f"{inside} + {column * (form.width - 1 - form.left)}"),
    ):
        if edge:
            declarations.append(f"const void *aot_{name} = {outside} ? (const void *)&aot_zero : (const void *)({place});")
            declarations.append(f"const int32_t aot_{name}row = {outside} ? 0 : aot_row;")
            moved.append(name)
            steps.append(f"{name}row")
    outs = [*(f'[{n}] "+&r"(aot_{n})' for n in (*moved, *(["n"] * form.loop))), *(f'[{n}] "=&r"(aot_{n})' for n in "tu")]
    return AsmBlock(declarations, form.text(), outs, [f'[{n}] "r"(aot_{n})' for n in steps], REGISTERS).emit()


def price(form: StripForm, trips: int) -> tuple[int, int]:
    """Instructions per execution, and cycles on a Cortex-M4."""
    parts = [(form.begin(), 1), (form.body(), trips * form.loop), (form.last(), 1)]
    skipped: Text = [line for phase in range(form.start * form.loop) for line in form.step(phase)]
    parts.append((skipped, -1))
    total = sum(times * count_instructions(text) for text, times in parts)
    return total + 4, total + 8 + sum(times * _waits(text) for text, times in parts) + trips


def _waits(text: Text) -> int:
    """`waits`, but of adjacent loads only the first takes two cycles, and stores take one."""
    names = [line.partition(" ")[0] if isinstance(line, str) else "" for line in text]
    is_load = [n in ("vldr.32", "ldr") for n in names]
    first = sum(here and not before for before, here in pairwise([False, *is_load]))
    return waits(text) + first + names.count("vstr.32")


MOST_COLUMNS = 8
AROUND = np.array([26, 36])
"""Instructions and cycles around a strip of one channel."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A layer, the form of its strips, the iterations of their loop; the last strip ends with the row and may overlap the one
    before.
    """

    layer: FloatLayer
    form: StripForm
    trips: int

    @property
    def strips(self) -> int:
        return -(-self.layer.columns.out // self.form.columns)

    @property
    def price(self) -> Array:
        """Instructions and cycles of the layer."""
        each = np.array(price(self.form, self.trips)) + AROUND
        total: Array = 30 + self.layer.batch * self.strips * (self.layer.channels * each + 12)
        return total


def plan(group: Group) -> Plan | None:
    """Layers without an epilogue; the fastest of the strips that fit."""
    layer = match_float_layer(group, DEPTHWISE)
    if layer is None or layer.epilogue:
        return None
    rows, columns = layer.rows, layer.columns
    if any((a.dilation > 1 and a.taps > 1) or a.stride > a.taps for a in (rows, columns)):
        return None
    if not 0 <= rows.taps - rows.stride - rows.before <= rows.size:
        return None
    plans = [p for n in range(2, 1 + min(MOST_COLUMNS, columns.out)) if (p := _plan(layer, n)) is not None]
    return min(plans, key=lambda p: p.price[1], default=None)


def _plan(layer: FloatLayer, count: int) -> Plan | None:
    """The plan with strips of `count` columns; None if registers do not suffice, or windows of several strips reach too far."""
    rows, columns = layer.rows, layer.columns
    taps, strides = (rows.taps, columns.taps), (rows.stride, columns.stride)
    outside = (columns.before, columns.after)
    only = count == columns.out
    if not only and (max(outside) > 1 or columns.before > columns.taps - columns.stride):
        return None
    left, right = (n == 1 and not only for n in outside)
    sizes, beyond, clamp = (count, layer.depth, layer.channels), (rows.before, rows.after), layer.clamp
    form = StripForm(taps, strides, *sizes, *beyond, 0, True, left, right, outside if only else (0, 0), clamp)
    whole = rows.out - form.remainder
    if whole < 0 or not form.fits:
        return None
    form = replace(form, start=-whole % form.rows_open if whole else 0, loop=whole > 0)
    return Plan(layer, form, (whole + form.start) // form.rows_open)


def lower(group: Group, _target: Target, name: str, plan: Plan) -> Lowered:
    layer, form = plan.layer, plan.form
    b = IRBuilder(name)
    io = FloatIo(b, group, layer, run=form.columns)
    rows, columns, depth, channels = layer.rows, layer.columns, layer.depth, layer.channels
    taps = rows.taps * columns.taps
    weights = layer.weight.reshape(taps, channels)
    params = io.stream(np.concatenate([weights, layer.bias.reshape(1, -1)]).T.reshape(-1))
    with b.for_("i", layer.batch) as i, b.for_("s", plan.strips) as s:
        first = b.let("first", minimum(s * form.columns, columns.out - form.columns))
        left = select(equal(s, 0), imm(1), imm(0)) if form.left else imm(0)
        right = select(equal(s, plan.strips - 1), imm(1), imm(0)) if form.right else imm(0)
        left, right = b.let("left", left), b.let("right", right)
        column = first * columns.stride + left - (0 if any(form.outside) else columns.before)
        data = b.let("data", (i * (rows.size * columns.size) + column) * depth)
        out = b.let("result", (i * (rows.out * columns.out) + first) * channels)
        with b.for_("d", depth) as d, b.for_("k", channels // depth) as k:
            numbers = (imm(columns.size * depth), imm(columns.out * channels), imm(plan.trips), left, right)
            c = d * (channels // depth) + k
            b.block(strip(form), region(io.data, data + d), region(params, c * (taps + 1)), region(io.out, out + c), *numbers)
    return io.lowered("arm_fpu.strip", plan.price, 160 + 4 * len(form.text()), columns=form.columns)


register_planned("arm_fpu.strip", DEPTHWISE, on_fpu(plan), lower, plevel=26, for_speed=True)
