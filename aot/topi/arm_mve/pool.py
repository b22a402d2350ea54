"""Pools and means over rows and columns by vectors of channels, one output pixel at a time: see intrin_pool.py.

No scratch memory.  Averages over windows that leave the image are left to others: they divide by the taps inside.
"""

from __future__ import annotations

from math import prod

import numpy as np

from aot.ir.op import Op
from aot.op.common.window import inside
from aot.op.qnn.requantize import RequantizeAttrs
from aot.relay.expr import Var, tensor_type
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, imm
from aot.tir.function import FuncAttrs
from aot.tir.intrin import TensorIntrin
from aot.topi.arm_mve.intrin_pool import Mean, Pixel, instructions, largest, largest_text, mean, mean_text
from aot.topi.arm_mve.requant import plan_vectors
from aot.topi.generic.pool import MAX_LANE_TAPS, exact_mean
from aot.topi.intrin.asm_text import count_instructions
from aot.topi.strategy import Group, Lowered, register_planned

LEAST = 8
"""Channels from which on vectors pay."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """`numbers`: those of a mean, None for maxima; `out` is [N, OH, OW, C]; a window of all columns counts as one line."""

    data: Var
    out: tuple[int, int, int, int]
    window: tuple[int, int]
    strides: tuple[int, int]
    padding: tuple[int, int, int, int]
    dtype: str
    pixel: Pixel
    numbers: Mean | None


def _plan(group: Group, target: Target) -> _Plan | None:
    anchor = group.anchor
    if group.followers or not target.has("mve") or not isinstance(anchor.op, Op) or not isinstance(anchor.args[0], Var):
        return None
    data, attrs, out = anchor.args[0], anchor.attrs, tensor_type(anchor)
    maximum = anchor.op.name == "nn.max_pool2d"
    kinds = ("int8", "uint8") if maximum else ("int8",)
    if len(data.type.shape) != 4 or data.type.dtype != out.dtype or out.dtype not in kinds or data.type.shape[3] < LEAST:
        return None
    n, height, width, depth = data.type.shape
    if anchor.op.name == "mean":
        numbers = _mean_numbers(group, height * width) if attrs.axes == (1, 2) else None
        pixel = Pixel(depth, width * depth, attrs.lo, attrs.hi, height * width)
        all_of_it = (n, 1, 1, depth)
        return _Plan(data, all_of_it, (1, height * width), (1, 1), (0, 0, 0, 0), "int8", pixel, numbers) if numbers else None
    shape = (n, out.shape[1], out.shape[2], depth)
    numbers = None
    if not maximum:
        found = exact_mean(prod(attrs.pool_size)) if prod(attrs.pool_size) <= MAX_LANE_TAPS and not any(attrs.padding) else None
        if found is None:
            return None
        numbers = Mean(found.multiplier, found.shift)
    window = attrs.pool_size
    if shape[1:3] == (1, 1) and window[1] == width and not any(attrs.padding):
        window = (1, window[0] * width)
    pixel = Pixel(depth, width * depth, attrs.lo, attrs.hi, 0 if any(attrs.padding) else window[1])
    return _Plan(data, shape, window, attrs.strides, attrs.padding, out.dtype, pixel, numbers)


def _mean_numbers(group: Group, taps: int) -> Mean | None:
    """Those of an operator MEAN, which requantises the sum."""
    attrs = group.anchor.attrs
    if taps > MAX_LANE_TAPS:
        return None
    wanted = RequantizeAttrs((attrs.multiplier,), (attrs.shift,), attrs.zero_point, attrs.lo, attrs.hi, "double")
    bias = -attrs.input_zp * taps
    requant = plan_vectors(wanted, np.array([bias - 128 * taps]), np.array([bias + 127 * taps]))
    if requant is None or requant.form.left:
        return None
    return Mean(attrs.multiplier, int(requant.right[0]), bias, requant.form)


def _lower(group: Group, _target: Target, name: str, plan: _Plan) -> Lowered:
    b = IRBuilder(name)
    data = b.input("data", (plan.data.type.size,), plan.dtype)
    out = b.output("out", (prod(plan.out),), plan.dtype)
    images, rows, columns, depth = plan.out
    _, height, width, _ = plan.data.type.shape
    block: TensorIntrin = largest(plan.pixel, plan.dtype) if plan.numbers is None else mean(plan.pixel, plan.numbers)
    with b.for_("i", images) as i, b.for_("y", rows) as y, b.for_("x", columns) as x:
        top, lines = _bounds(b, plan, y, 0)
        left, across = _bounds(b, plan, x, 1)
        first = ((i * height + top) * width + left) * depth
        b.block(block, region(data, first), region(out, ((i * rows + y) * columns + x) * depth), lines, across)
    kernel = "mean" if plan.numbers is not None else "max_pool"
    func = b.finish(FuncAttrs(kernel=f"arm_mve.{kernel}", span=group.anchor.span))
    text = largest_text(plan.pixel, plan.dtype) if plan.numbers is None else mean_text(plan.pixel, plan.numbers)
    each = instructions(plan.pixel, text, lanes=16 if plan.numbers is None else 8, rows=_taps(plan, 0), columns=_taps(plan, 1))
    around = 10 + 18 * any(plan.padding)
    code = 4 * count_instructions(text) + 80 + 100 * any(plan.padding)
    return Lowered(func, {}, int(images * rows * columns * (each + around)) + 20, code)


def _bounds(b: IRBuilder, plan: _Plan, position: Expr, axis: int) -> tuple[Expr, Expr]:
    """First position of a window inside the image, and how many there are."""
    stride, kernel = plan.strides[axis], plan.window[axis]
    if not any(plan.padding):
        return position * stride, imm(kernel)
    size = plan.data.type.shape[1 + axis]
    start, stop = inside(position, stride=stride, before=plan.padding[axis], kernel=kernel, size=size)
    first = b.let("start", start)
    return first, b.let("taps", stop - first)


def _taps(plan: _Plan, axis: int) -> float:
    """Taps of a window inside the image, on average."""
    stride, kernel, size = plan.strides[axis], plan.window[axis], plan.data.type.shape[1 + axis]
    if not any(plan.padding):
        return kernel
    starts = [i * stride - plan.padding[axis] for i in range(plan.out[1 + axis])]
    return sum(min(s + kernel, size) - max(s, 0) for s in starts) / len(starts)


for _anchor in ("nn.max_pool2d", "nn.avg_pool2d", "mean"):
    register_planned("arm_mve.pool", _anchor, _plan, _lower, plevel=40)
