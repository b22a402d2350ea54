"""qnn.multiply: MUL of TFLite on int8 and int16 with broadcasting (float32 and plain integers: `arithmetic.py`).

out = clamp(zp + rescale((a - zp_a) * (b - zp_b)), lo, hi) with double rounding.
For int8 the loop nest uses the 32-bit form of `aot.numerics.linear` where there is one.
Oracle: `reference_integer_ops::Mul` with the parameters of `mul.cc`, which multiplies the scales in float32 (TFLM in double).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, register_op
from aot.ir.type import TensorType, Type
from aot.numerics.fixed_point import named, requantize, tir_requantize
from aot.numerics.linear import Rescaling, rescaling_of_products
from aot.op.common.binary import RescaledAttrs, broadcast_at, broadcast_type, two_of_one_type
from aot.op.te_rule import F_TE, TeContext
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast

CODES = ("int8", "int16")


def infer_type(types: Sequence[Type], attrs: RescaledAttrs) -> Type:
    """Two int8 or int16 tensors whose shapes broadcast -> the same type."""
    a, b = two_of_one_type(list(types), "qnn.multiply", CODES)
    return broadcast_type(a, b, a.dtype, attrs.quant)


def evaluate(a: Array, b: Array, *, attrs: RescaledAttrs, out_type: TensorType) -> Array:
    product = (a.astype(np.int64) - attrs.input_zp[0]) * (b.astype(np.int64) - attrs.input_zp[1])
    scaled = requantize(product, attrs.multiplier, attrs.shift, zero_point=attrs.zero_point, lo=attrs.lo, hi=attrs.hi)
    return scaled.astype(out_type.dtype)


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: RescaledAttrs, out_type: TensorType) -> TensorFn:
    numbers = Rescaling(attrs.multiplier, attrs.shift, attrs.zero_point, attrs.lo, attrs.hi)
    form = rescaling_of_products(attrs.input_zp, numbers) if out_type.dtype == "int8" else None

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        x, y = (cast("int32", broadcast_at(b, t, i)) - zp for t, zp in zip(args, attrs.input_zp, strict=True))
        if form is not None:
            return cast(out_type.dtype, form.emit(b, x * y))
        value = tir_requantize(
            b,
            named(b, "product", x * y),
            multiplier=attrs.multiplier,
            shift=attrs.shift,
            zero_point=attrs.zero_point,
            lo=attrs.lo,
            hi=attrs.hi,
        )
        return cast(out_type.dtype, value)

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "qnn.multiply",
    2,
    arguments=[("a", "int8, int16", "the left operand"), ("b", "as a", "the right operand; shapes broadcast")],
    attrs_type=RescaledAttrs,
    pattern=OpPattern.BROADCAST,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="MUL; int8, int16, uint8, with broadcasting",
)
F_TE.set("qnn.multiply", te_rule)
