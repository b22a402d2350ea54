"""signal.window: SignalWindow of TFLM: each frame times a window, shifted right and clamped to int16.

out[..., i] = clamp((data[..., i] * window[i]) >> shift).  Oracle: TFLM's `signal/src/window.cc`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.move import tensors_of
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, clamp


@dataclass(frozen=True, slots=True)
class WindowAttrs:
    """Bits of the window's fraction."""

    shift: int


def infer_type(types: Sequence[Type], _attrs: WindowAttrs) -> Type:
    """int16 [..., n], int16 [n] -> int16 [..., n]."""
    data, window = tensors_of(types, 2)
    if data.dtype != "int16" or window.dtype != "int16" or not data.shape or window.shape != data.shape[-1:]:
        raise TypeRuleError(f"a window {window} on {data}")
    return TensorType(data.shape, "int16")


def evaluate(data: Array, window: Array, *, attrs: WindowAttrs, out_type: TensorType) -> Array:
    return np.asarray(np.clip((data.astype(np.int32) * window) >> attrs.shift, -32768, 32767), np.int16)


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: WindowAttrs, out_type: TensorType) -> TensorFn:
    data, window = args

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        product = cast("int32", data.at(b, i)) * cast("int32", window.at(b, i[-1:]))
        return cast("int16", clamp(product >> attrs.shift, -32768, 32767))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "signal.window",
    2,
    arguments=[("data", "int16 [..., n]", "frames"), ("window", "int16 [n]", "a factor for each place of a frame")],
    attrs_type=WindowAttrs,
    pattern=OpPattern.BROADCAST,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="SignalWindow of TFLM; int16",
)
F_TE.set("signal.window", te_rule)
