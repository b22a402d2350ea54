"""nn.max_pool2d: MAX_POOL_2D of TFLite on int8, int16, uint8 and float32.

The largest element of the part of the window inside the image, then clamped (integers only).
Oracle: `reference_integer_ops::MaxPool` and `reference_ops::MaxPool`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, register_op
from aot.ir.type import TensorType
from aot.op.common.pool import PoolAttrs, infer_pool, pad_widths, taps, window_axes
from aot.op.te_rule import F_TE, TeContext
from aot.support.dtype import int_range, is_float, lowest
from aot.te.tensor import TensorFn, reduce, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, clamp, maximum, select


def evaluate(data: Array, *, attrs: PoolAttrs, out_type: TensorType) -> Array:
    start = lowest(out_type.dtype)
    padded = np.pad(data, pad_widths(attrs), constant_values=start)
    result = np.full(out_type.shape, start, data.dtype)
    for part in taps(padded, attrs, out_type):
        result = np.where(result < part, part, result)
    return result if is_float(out_type.dtype) else np.clip(result, attrs.lo, attrs.hi).astype(data.dtype)


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: PoolAttrs, out_type: TensorType) -> TensorFn:
    (data,) = args
    dtype = "float32" if is_float(out_type.dtype) else "int32"

    def larger(a: Expr, b: Expr) -> Expr:
        return select(a < b, b, a) if dtype == "float32" else maximum(a, b)

    def rule(b: IRBuilder, n: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
        def term(ry: Expr, rx: Expr) -> Expr:
            return cast(dtype, data.at(b, (n, ry, rx, c)))

        axes = window_axes(b, y, x, image=data.shape[1:3], attrs=attrs)
        best = reduce(b, axes, term, combine=larger, init=lowest(out_type.dtype), dtype=dtype)
        if dtype == "float32":
            return best
        low, high = int_range(out_type.dtype)
        return cast(out_type.dtype, best if (attrs.lo, attrs.hi) == (low, high) else clamp(best, attrs.lo, attrs.hi))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "nn.max_pool2d",
    1,
    arguments=[("data", "int8, int16, float32 [N, H, W, C]", "the image")],
    attrs_type=PoolAttrs,
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
    infer_type=infer_pool,
    evaluate=evaluate,
    doc="MAX_POOL_2D; int8, int16, uint8, float32",
)
F_TE.set("nn.max_pool2d", te_rule)
