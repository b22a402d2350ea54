"""fake_quant: FAKE_QUANT of TFLite: float32 to the nearest of 2^bits equally spaced numbers, one of which is 0.

out = round((clamp(x) - low) * (1 / scale)) * scale + low, halves up, in float32; NaN becomes the lowest number.
Oracle: `reference_ops::FakeQuant`.
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
from aot.tir.expr import Expr, cast, imm, select


@dataclass(frozen=True, slots=True)
class FakeQuantAttrs:
    """float32 numbers: the lowest and the highest result, the distance between two."""

    low: float
    high: float
    scale: float


def infer_type(types: Sequence[Type], attrs: FakeQuantAttrs) -> Type:
    """float32 -> float32."""
    (data,) = tensors_of(types, 1)
    if data.dtype != "float32" or not attrs.low <= attrs.high or attrs.scale <= 0:
        raise TypeRuleError(f"fake_quant of {data} by {attrs}")
    return data


def evaluate(data: Array, *, attrs: FakeQuantAttrs, out_type: TensorType) -> Array:
    low, high, scale = (np.float32(v) for v in (attrs.low, attrs.high, attrs.scale))
    above = np.where(low < data, data, low)
    bounded = np.where(above < high, above, high)
    steps = (bounded - low) * (np.float32(1) / scale)
    return np.asarray(np.floor(steps.astype(np.float64) + 0.5).astype(np.float32) * scale + low, np.float32)


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: FakeQuantAttrs, out_type: TensorType) -> TensorFn:
    (data,) = args

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        low, high, scale = (imm(float(np.float32(v)), "float32") for v in (attrs.low, attrs.high, attrs.scale))
        inverse = imm(float(np.float32(1) / np.float32(attrs.scale)), "float32")
        x = b.let("x", data.at(b, i))
        above = b.let("above", select(low < x, x, low))
        steps = b.let("steps", (select(above < high, above, high) - low) * inverse)
        whole = b.let("whole", cast("int32", steps))
        nearest = whole + select(steps - cast("float32", whole) < imm(0.5, "float32"), imm(0), imm(1))
        return cast("float32", nearest) * scale + low

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "fake_quant",
    1,
    arguments=[("data", "float32", "numbers")],
    attrs_type=FakeQuantAttrs,
    pattern=OpPattern.ELEMWISE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="FAKE_QUANT; float32",
)
F_TE.set("fake_quant", te_rule)
