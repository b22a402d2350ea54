"""qnn.dequantize: DEQUANTIZE of TFLite, int8, uint8, int16 or float16 to float32; of constants also int4.

out = scale * (q - zero_point).  The reference multiplies in double and rounds to float32; a float32 product is the same number,
since a 24-bit scale times a 9-bit or 16-bit integer is exact before that one rounding.  Oracle: `reference_ops::Dequantize`.
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
from aot.tir.expr import Expr, cast, imm

DTYPES = ("int8", "uint8", "int16")


@dataclass(frozen=True, slots=True)
class DequantizeAttrs:
    """Parameters of the data."""

    scale: float
    zero_point: int


def infer_type(types: Sequence[Type], attrs: DequantizeAttrs) -> Type:
    """int8, uint8 or int16 -> float32 of the same shape."""
    (data,) = types
    if not isinstance(data, TensorType) or data.dtype not in DTYPES:
        raise TypeRuleError(f"dequantize takes an int8, uint8 or int16 tensor, not {data}")
    return data.with_dtype("float32")


def evaluate(data: Array, *, attrs: DequantizeAttrs, out_type: TensorType) -> Array:
    return (attrs.scale * (data.astype(np.float64) - attrs.zero_point)).astype(np.float32)


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: DequantizeAttrs, out_type: TensorType) -> TensorFn:
    def rule(b: IRBuilder, *i: Expr) -> Expr:
        centred = cast("int32", args[0].at(b, i)) - attrs.zero_point
        return cast("float32", centred) * imm(attrs.scale, "float32")

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "qnn.dequantize",
    1,
    arguments=[("data", "int8, uint8, int16", "quantised values")],
    attrs_type=DequantizeAttrs,
    pattern=OpPattern.ELEMWISE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="DEQUANTIZE; int8, uint8, int16 to float32",
)
F_TE.set("qnn.dequantize", te_rule)
