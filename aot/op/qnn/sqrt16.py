"""qnn.sqrt16: SQRT of int16, by floats: sqrt(scale_in * x) / scale, each step in float32, cut to an integer.

A table of 513 values, as other functions of int16 have it, would not give the reference's bits: `SqrtEvalQuantized` of
`elementwise.cc` takes every root by itself.  A root beyond an int32 becomes the lowest number (`aot.numerics.indefinite`).
Negative numbers, which the reference reports as errors, are as 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import QuantParams, TensorType, Type
from aot.numerics.elementary import MATH, apply
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, imm, maximum, select

TOO_LARGE = 2.0**31


@dataclass(frozen=True, slots=True)
class Sqrt16Attrs:
    """The scales of data and result, both float32; the result's parameters."""

    scale_in: float
    scale: float
    quant: QuantParams | None = None


def infer_type(types: Sequence[Type], attrs: Sqrt16Attrs) -> Type:
    """int16 -> int16 of the same shape."""
    (data,) = types
    if not isinstance(data, TensorType) or data.dtype != "int16":
        raise TypeRuleError(f"sqrt16 takes an int16 tensor, not {data}")
    return data.with_dtype("int16", attrs.quant)


def quantized_sqrt(x: Array, scale_in: float, scale: float) -> Array:
    """int64: the roots of integers x, negative ones as 0, in units of `scale`, as x86 casts them to int32."""
    with np.errstate(over="ignore"):
        root = apply("sqrt", np.float32(scale_in) * np.maximum(x, 0).astype(np.float32)) / np.float32(scale)
    result: Array = np.where(root < TOO_LARGE, np.minimum(root, np.float32(TOO_LARGE / 2)), -TOO_LARGE).astype(np.int64)
    return result


def evaluate(data: Array, *, attrs: Sqrt16Attrs, out_type: TensorType) -> Array:
    return np.clip(quantized_sqrt(data, attrs.scale_in, attrs.scale), -32768, 32767).astype(np.int16)


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: Sqrt16Attrs, out_type: TensorType) -> TensorFn:
    def rule(b: IRBuilder, *i: Expr) -> Expr:
        x = cast("float32", maximum(cast("int32", args[0].at(b, i)), 0))
        root = b.let("root", MATH["sqrt"](x * imm(attrs.scale_in, "float32")) / imm(attrs.scale, "float32"))
        largest = imm(32767.0, "float32")
        inside = cast("int32", select(root < largest, root, largest))
        return cast("int16", select(root < imm(TOO_LARGE, "float32"), inside, imm(-32768)))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "qnn.sqrt16",
    1,
    arguments=[("data", "int16", "the operand")],
    attrs_type=Sqrt16Attrs,
    pattern=OpPattern.ELEMWISE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="SQRT on int16",
)
F_TE.set("qnn.sqrt16", te_rule)
