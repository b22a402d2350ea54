"""mediapipe.unpool: MaxUnpooling2D, which puts each element back where a maximum pool found it, among zeros.

`indices` are tap numbers as MaxPoolingWithArgmax2D counts them, rounded down; windows lie side by side.  An element whose index
is outside of its window, which the oracle writes somewhere else or behind the image, is dropped.
Oracle: MediaPipe's `max_unpooling.cc`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, imm, logical_and, select

NAME = "mediapipe.unpool"


@dataclass(frozen=True, slots=True)
class UnpoolAttrs:
    """(Vertical, horizontal) window, which is the stride too."""

    window: tuple[int, int]


def infer_type(types: Sequence[Type], attrs: UnpoolAttrs) -> Type:
    """Two float32 [N, H, W, C] -> float32 [N, H * window, W * window, C]."""
    data, indices = types
    if not isinstance(data, TensorType) or not isinstance(indices, TensorType) or len(data.shape) != 4:
        raise TypeRuleError(f"{NAME} does not take {data} and {indices}")
    if data.shape != indices.shape or {data.dtype, indices.dtype} != {"float32"} or min(attrs.window) < 1:
        raise TypeRuleError(f"{NAME} does not take {data} and {indices} with a window of {attrs.window}")
    n, h, w, c = data.shape
    return TensorType((n, h * attrs.window[0], w * attrs.window[1], c), "float32")


def evaluate(data: Array, indices: Array, *, attrs: UnpoolAttrs, out_type: TensorType) -> Array:
    (n, h, w, c), (kh, kw) = data.shape, attrs.window
    place = np.floor(indices)[:, :, None, :, None, :]
    taps = np.arange(kh * kw, dtype=np.float32).reshape(kh, 1, kw, 1)
    found = np.where(place == taps, data[:, :, None, :, None, :], np.float32(0))
    return np.asarray(found.reshape(n, h * kh, w * kw, c), np.float32)


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: UnpoolAttrs, out_type: TensorType) -> TensorFn:
    data, indices = args
    kh, kw = attrs.window

    def rule(b: IRBuilder, n: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
        source = (n, b.let("row", y // kh), b.let("column", x // kw), c)
        tap = (y - source[1] * kh) * kw + (x - source[2] * kw)
        number = b.let("number", cast("float32", tap))
        place = b.let("place", indices.at(b, source))
        here = logical_and(place >= number, place < number + imm(1.0, "float32"))
        return select(here, data.at(b, source), imm(0.0, "float32"))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    NAME,
    2,
    arguments=[("data", "float32 [N, H, W, C]", "the maxima"), ("indices", "as data", "their places in the windows")],
    attrs_type=UnpoolAttrs,
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="MaxUnpooling2D of MediaPipe",
)
F_TE.set(NAME, te_rule)
