"""mediapipe.argmax: where in its window the largest element of a maximum pool is, as MaxPoolingWithArgmax2D counts.

The number of the tap, rows of the whole window first, and 0.1, as float32; 0.1 where no element is above the lowest number.
Oracle: MediaPipe's `max_pool_argmax.cc`; the maxima themselves are those of MAX_POOL_2D.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, register_op
from aot.ir.type import TensorType
from aot.op.common.pool import PoolAttrs, infer_pool, pad_widths, taps
from aot.op.common.window import inside
from aot.op.te_rule import F_TE, TeContext
from aot.support.dtype import lowest
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, imm

NAME = "mediapipe.argmax"
_REST = float(np.float32(0.1))


def evaluate(data: Array, *, attrs: PoolAttrs, out_type: TensorType) -> Array:
    padded = np.pad(data, pad_widths(attrs), constant_values=lowest("float32"))
    best = np.full(out_type.shape, lowest("float32"), np.float32)
    where = np.zeros(out_type.shape, np.float32)
    for number, tap in enumerate(taps(padded, attrs, out_type)):
        better = tap > best
        best, where = np.where(better, tap, best), np.where(better, np.float32(number), where)
    return np.asarray(where + np.float32(_REST), np.float32)


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: PoolAttrs, out_type: TensorType) -> TensorFn:
    (data,) = args
    (kh, kw), (sy, sx), (top, left, _, _) = attrs.pool_size, attrs.strides, attrs.padding

    def rule(b: IRBuilder, n: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
        best = b.local("best", (1,), "float32", init=lowest("float32"))
        where = b.local("where", (1,), "int32", init=0)
        (first, last), (begin, end) = (
            inside(y, stride=sy, before=top, kernel=kh, size=data.shape[1]),
            inside(x, stride=sx, before=left, kernel=kw, size=data.shape[2]),
        )
        row, column = b.let("row", y * sy - top), b.let("column", x * sx - left)
        with b.for_("iy", last, start=first) as iy, b.for_("ix", end, start=begin) as ix:
            value = b.let("value", data.at(b, (n, iy, ix, c)))
            with b.if_(value > best[0]):
                b.store(best, 0, value)
                b.store(where, 0, (iy - row) * kw + (ix - column))
        return cast("float32", where[0]) + imm(_REST, "float32")

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    NAME,
    1,
    arguments=[("data", "float32 [N, H, W, C]", "the image")],
    attrs_type=PoolAttrs,
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
    infer_type=infer_pool,
    evaluate=evaluate,
    doc="MaxPoolingWithArgmax2D of MediaPipe: the places of the maxima",
)
F_TE.set(NAME, te_rule)
