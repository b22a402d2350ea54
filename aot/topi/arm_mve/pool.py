"""Pooling and means over rows and columns for MVE: one output pixel at a time, with channels in vectors.

A vector holds 16 channels for maxima, and 8 channels with 16-bit sums for means, so one load and one instruction process a tap of
all of them.  No scratch memory.  Average pooling whose windows cross the border is left to other kernels: it divides by the taps
inside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from math import prod
from operator import add

import numpy as np

from aot.op.common.layer import inside
from aot.op.qnn.quantize import RequantizeAttrs
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range
from aot.target.target import Target
from aot.tir.buffer import UNKNOWN_EXTENT
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, Var, cast, clamp, imm, maximum, minimum
from aot.tir.function import FuncAttrs
from aot.tir.intrin import TensorIntrin
from aot.topi.arm_mve.vectors import NEAR, RequantForm, plan_vectors, splat
from aot.topi.generic.pool import MAX_LANE_TAPS, PoolLayer, exact_mean, match_pool
from aot.topi.intrin.asm_text import Repeat, asm, block_of, count_instructions, executed
from aot.topi.strategy import Group, Lowered, register_planned

Text = list[str | Repeat]


@dataclass(frozen=True, slots=True)
class Pixel:
    """`channels` of one pixel; a line of the image is `line` bytes; results are clamped to [lo, hi].

    `across`: columns of the window if all pixels have the same number, else 0.
    """

    channels: int
    line: int
    lo: int
    hi: int
    across: int = 0

    @property
    def unroll(self) -> int:
        """Columns per iteration."""
        return max(u for u in range(1, 9) if self.across % u == 0) if self.across else 1


@dataclass(frozen=True, slots=True)
class Mean:
    """How a sum becomes a mean: (total * multiplier + half) >> shift; with a `form`, `bias` is added and then its steps are
    applied.
    """

    multiplier: int
    shift: int
    bias: int = 0
    form: RequantForm | None = None


@cache
def largest(pixel: Pixel, dtype: str) -> TensorIntrin:
    """out[c] = the largest of data[y * line + x * channels + c] over y < rows, x < columns, clamped to the bounds.

    Operands: data and out of `dtype` (int8, uint8), which do not overlap; rows and columns, each at least 1.
    """

    def finish(_b: IRBuilder, best: Expr) -> Expr:
        return minimum(best, pixel.hi)

    name, text = f"largest_{dtype}_{pixel.channels}", largest_text(pixel, dtype)
    return _reduction(name, dtype, pixel, text, start=("best", pixel.lo), step=maximum, finish=finish)


@cache
def mean(pixel: Pixel, numbers: Mean) -> TensorIntrin:
    """out[c] = the mean of data[y * line + x * channels + c] over y < rows, x < columns, clamped to the bounds.

    Operands: data and out int8, which do not overlap; rows and columns, each at least 1, at most 256 elements in total.
    """

    def finish(b: IRBuilder, total: Expr) -> Expr:
        if numbers.form is not None:
            return numbers.form.meaning(b, total, (imm(numbers.bias), imm(numbers.multiplier), imm(numbers.shift)))
        return clamp((total * numbers.multiplier + (1 << (numbers.shift - 1))) >> numbers.shift, pixel.lo, pixel.hi)

    text = mean_text(pixel, numbers)
    return _reduction(f"mean_{pixel.channels}", "int8", pixel, text, start=("total", 0), step=add, finish=finish)


def _reduction(
    name: str, dtype: str, pixel: Pixel, text: Text, *, start: tuple[str, int], step: Callable[[Expr, Expr], Expr],
    finish: Callable[[IRBuilder, Expr], Expr],
) -> TensorIntrin:  # fmt: skip
    """The block that combines the elements of a window by `step`, beginning with the value `start`."""
    b = IRBuilder(name)
    data = b.input("data", (UNKNOWN_EXTENT,), dtype)
    out = b.output("out", (UNKNOWN_EXTENT,), dtype)
    rows, columns = Var("rows"), Var("columns")
    with b.for_("c", pixel.channels) as c:
        value = b.local(start[0], (1,), "int32", init=start[1])
        with b.for_("y", rows) as y, b.for_("x", columns) as x:
            b.store(value, 0, step(value[0], cast("int32", data[y * pixel.line + x * pixel.channels + c])))
        b.store(out, c, finish(b, value[0]))
    clobbers = ["r0", "r3", "r4", "r5", "r6", "r8", "lr", *(f"q{i}" for i in range(8))]
    emit = partial(asm, text=text, pointers="x@r1=data >o@r2=out", ins="rows columns", clobbers=clobbers)
    return block_of(b, "arm_mve", emit, rows, columns)


def _channels(pixel: Pixel, lanes: int, *, head: list[str], tap: list[str], foot: list[str]) -> Text:
    """The loops; r5 remaining channels, r1 and r2 the current ones, r3 a line, r4 a pixel, r6 remaining lines.

    `tap` reads at r4.  Every vector is predicated, so nothing after the last channel is read or written.
    """
    near = pixel.channels <= NEAR
    taps = [Repeat(pixel.unroll, [*tap, *([] if near else ["add r4, r4, r0"])])]
    text: Text = [f"movw r5, #{pixel.channels}", "1:", f"vctp.{128 // lanes} r5", *head, "mov r3, r1"]
    text += ["mov r6, %[rows]", "2:", "mov r4, r3"]
    if pixel.across == pixel.unroll:
        text += taps
    else:
        count = [f"mov lr, #{pixel.across // pixel.unroll}", "dls lr, lr"] if pixel.across else ["dls lr, %[columns]"]
        text += [*count, "3:", *taps, "le lr, 3b"]
    text += [f"movw r4, #{pixel.line & 0xFFFF}", *([f"movt r4, #{pixel.line >> 16}"] if pixel.line > 0xFFFF else [])]
    text += ["add r3, r3, r4", "subs r6, r6, #1", "bne 2b", *foot]
    text += [f"add r1, r1, #{lanes}", f"subs r5, r5, #{lanes}", "bgt 1b"]
    return text if near else [f"movw r0, #{pixel.channels}", *text]


def _load(pixel: Pixel, kind: str, *, lanes: int) -> list[str]:
    """Load a pixel's channels into q1, with zeros after the last one."""
    place = f"[r4], #{pixel.channels}" if pixel.channels <= NEAR else "[r4]"
    return [f"vldrb.{kind} q1, {place}"] if pixel.channels % lanes == 0 else ["vpst", f"vldrbt.{kind} q1, {place}"]


def _word(register: str, value: int) -> list[str]:
    return [f"movw {register}, #{value & 0xFFFF}", f"movt {register}, #{value >> 16 & 0xFFFF}"]


def largest_text(pixel: Pixel, dtype: str) -> Text:
    """The assembly; q0 the largest so far, q2 and q3 the bounds."""
    kind = "s8" if dtype == "int8" else "u8"
    high = pixel.hi < int_range(dtype)[1]
    setup = splat("q2", pixel.lo, 8) + (splat("q3", pixel.hi, 8) if high else [])
    tap = [*_load(pixel, "u8", lanes=16), f"vmax.{kind} q0, q0, q1"]
    foot = ["vmin.u8 q0, q0, q3" if kind == "u8" else "vmin.s8 q0, q0, q3"] if high else []
    loops = _channels(pixel, 16, head=["vmov q0, q2"], tap=tap, foot=[*foot, "vpst", "vstrbt.8 q0, [r2], #16"])
    return [*setup, *loops]


def mean_text(pixel: Pixel, numbers: Mean) -> Text:
    """The assembly; q0 16-bit sums; r8 bias or half, q3 multiplier, q4 shift."""
    form = numbers.form
    setup = [*form.setup] if form else []
    setup += _word("r8", numbers.bias if form else 1 << (numbers.shift - 1))
    for register, value in (("q3", numbers.multiplier), ("q4", numbers.shift if form else -numbers.shift)):
        setup += [*_word("r0", value), f"vdup.32 {register}, r0"]
    pair = ("q0", "q1")
    foot = ["vmovlt.s16 q1, q0", "vmovlb.s16 q0, q0"]
    if form:
        foot += [f"vadd.i32 {q}, {q}, r8" for q in pair] + [f"{form.multiply} {q}, {q}, q3" for q in pair]
        foot += [*form.shift(pair, "q2", "q4"), *form.narrow]
    else:
        foot += [f"vmul.i32 {q}, {q}, q3" for q in pair] + [f"vadd.i32 {q}, {q}, r8" for q in pair]
        foot += [f"vshl.s32 {q}, {q}, q4" for q in pair] + ["vqmovnb.s32 q0, q0", "vqmovnt.s32 q0, q1", "vqmovnb.s16 q0, q0"]
        for bound, op, usual in ((pixel.lo, "vmax", -128), (pixel.hi, "vmin", 127)):
            if bound != usual:
                foot += [*splat("q1", bound, 8, "r4"), f"{op}.s8 q0, q0, q1"]
    tap = [*_load(pixel, "s16", lanes=8), "vadd.i16 q0, q0, q1"]
    loops = _channels(pixel, 8, head=["vmov.i32 q0, #0"], tap=tap, foot=[*foot, "vpst", "vstrbt.16 q0, [r2], #8"])
    return [*setup, *loops]


LEAST = 8
"""Fewest channels for which vectors pay off."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """`numbers`: numbers of a mean, None for maxima.  A window that covers all columns counts as one line of the image."""

    layer: PoolLayer
    pixel: Pixel
    numbers: Mean | None


def _plan(group: Group, target: Target) -> _Plan | None:
    layer = match_pool(group) if target.has("mve") else None
    if layer is None or layer.out[3] < LEAST:
        return None
    numbers = None if layer.kind == "max" else _mean_numbers(layer)
    if layer.kind != "max" and numbers is None:
        return None
    width, depth = layer.image[1], layer.out[3]
    if layer.out[1:3] == (1, 1) and layer.full_rows:
        layer = replace(layer, window=(1, layer.taps))
    pixel = Pixel(depth, width * depth, layer.attrs.lo, layer.attrs.hi, 0 if any(layer.padding) else layer.window[1])
    return _Plan(layer, pixel, numbers)


def _mean_numbers(layer: PoolLayer) -> Mean | None:
    """The numbers of average pooling, or of the operator MEAN, which requantises the sum."""
    attrs, taps = layer.attrs, layer.taps
    if taps > MAX_LANE_TAPS:
        return None
    if layer.kind != "mean":
        exact = None if any(layer.padding) else exact_mean(taps)
        return None if exact is None else Mean(exact.multiplier, exact.shift)
    rescaling = RequantizeAttrs((attrs.multiplier,), (attrs.shift,), attrs.zero_point, attrs.lo, attrs.hi, "double")
    bias = -attrs.input_zp * taps
    requant = plan_vectors(rescaling, np.array([bias - 128 * taps]), np.array([bias + 127 * taps]))
    if requant is None or requant.form.left:
        return None
    return Mean(attrs.multiplier, int(requant.right[0]), bias, requant.form)


def _lower(group: Group, _target: Target, name: str, plan: _Plan) -> Lowered:
    b, layer, pixel, numbers = IRBuilder(name), plan.layer, plan.pixel, plan.numbers
    data = b.input("data", (layer.data.type.size,), layer.dtype)
    out = b.output("out", (prod(layer.out),), layer.dtype)
    images, rows, columns, depth = layer.out
    height, width = layer.image
    block: TensorIntrin = largest(pixel, layer.dtype) if numbers is None else mean(pixel, numbers)
    with b.for_("i", images) as i, b.for_("y", rows) as y, b.for_("x", columns) as x:
        top, lines = _bounds(b, layer, y, 0)
        left, across = _bounds(b, layer, x, 1)
        first = ((i * height + top) * width + left) * depth
        b.block(block, region(data, first), region(out, ((i * rows + y) * columns + x) * depth), lines, across)
    func = b.finish(FuncAttrs(kernel=f"arm_mve.{'max_pool' if numbers is None else 'mean'}", span=group.anchor.span))
    text, lanes = (largest_text(pixel, layer.dtype), 16) if numbers is None else (mean_text(pixel, numbers), 8)
    taps = [layer.mean_count(axis) if any(layer.padding) else layer.window[axis] for axis in range(2)]
    each = executed(text, {"1": -(-pixel.channels // lanes), "2": taps[0], "3": taps[1] / pixel.unroll}) + 4
    around = 10 + 18 * any(layer.padding)
    code = 4 * count_instructions(text) + 80 + 100 * any(layer.padding)
    return Lowered(func, {}, int(images * rows * columns * (each + around)) + 20, code)


def _bounds(b: IRBuilder, layer: PoolLayer, position: Expr, axis: int) -> tuple[Expr, Expr]:
    """The first position of a window that is inside the image, and how many there are."""
    stride, kernel = layer.strides[axis], layer.window[axis]
    if not any(layer.padding):
        return position * stride, imm(kernel)
    start, stop = inside(position, stride=stride, before=layer.padding[axis], kernel=kernel, size=layer.image[axis])
    first = b.let("start", start)
    return first, b.let("taps", stop - first)


for _anchor in ("nn.max_pool2d", "nn.avg_pool2d", "mean"):
    register_planned("arm_mve.pool", _anchor, _plan, _lower, plevel=40)
