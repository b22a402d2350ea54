"""nn.avg_pool2d: AVERAGE_POOL_2D of TFLite on int8, int16, uint8 and float32.

The mean of the part of the window inside the image, rounded to the nearest with halves away from zero, then clamped.
Oracles: `reference_integer_ops::AveragePool`, `reference_ops::AveragePool` (uint8, on the quantised values as they are: shifted
to int8 halves would go the other way).  Floats are added in the order of the window, then divided.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from aot.ir.op import Array, OpPattern, register_op
from aot.ir.type import TensorType
from aot.numerics.fixed_point import clamp_array
from aot.op.common.pool import PoolAttrs, infer_pool, pad_widths, taps, window_axes
from aot.op.te_rule import F_TE, TeContext
from aot.support.dtype import is_float
from aot.te.tensor import TensorFn, sum, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, as_expr, cast, clamp, imm, select


def evaluate(data: Array, *, attrs: PoolAttrs, out_type: TensorType) -> Array:
    wide = np.float32 if is_float(out_type.dtype) else np.int64
    total = np.zeros(out_type.shape, wide)
    count = np.zeros((1, *out_type.shape[1:3], 1), np.int64)
    widths = pad_widths(attrs)
    padded = np.pad(data.astype(wide), widths)
    ones = np.pad(np.ones((1, *data.shape[1:3], 1), np.int64), widths)
    for part, here in zip(taps(padded, attrs, out_type), taps(ones, attrs, out_type), strict=True):
        total += part
        count += here
    if is_float(out_type.dtype):
        return np.asarray(total / count.astype(np.float32), np.float32)
    mean = np.sign(total) * ((np.abs(total) + count // 2) // count)
    return clamp_array(mean, attrs.lo, attrs.hi, out_type.dtype)


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: PoolAttrs, out_type: TensorType) -> TensorFn:
    (data,) = args

    def rule(b: IRBuilder, n: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
        axes = rows, columns = window_axes(b, y, x, image=data.shape[1:3], attrs=attrs)
        count: Expr | int = prod(attrs.pool_size)
        if any(attrs.padding):
            count = b.let("count", (rows.stop - rows.start) * (columns.stop - columns.start))
        if is_float(out_type.dtype):
            zero = imm(0.0, "float32")
            total = sum(b, axes, lambda ry, rx: data.at(b, (n, ry, rx, c)), init=zero, dtype="float32")
            return total / (imm(float(count), "float32") if isinstance(count, int) else cast("float32", count))
        acc = b.let("total", sum(b, axes, lambda ry, rx: cast("int32", data.at(b, (n, ry, rx, c)))))
        n_window = as_expr(count)
        half = n_window / 2
        mean = select(acc > 0, acc + half, acc - half) / n_window
        return cast(out_type.dtype, clamp(mean, attrs.lo, attrs.hi))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "nn.avg_pool2d",
    1,
    arguments=[("data", "int8, int16, float32 [N, H, W, C]", "the image")],
    attrs_type=PoolAttrs,
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
    infer_type=infer_pool,
    evaluate=evaluate,
    doc="AVERAGE_POOL_2D; int8, int16, uint8, float32",
)
F_TE.set("nn.avg_pool2d", te_rule)
