"""template.negate: the operator's computation, as a formula in quantised values.

out = clamp(zp - (x - zp_in), -128, 127).  Oracle: name the reference kernel whose bytes `evaluate` reproduces.

Copy this into the file of the operator's family, or into a new one (files that start with an underscore are not loaded), keep the
order of its parts, and copy `aot/frontend/tflite/_template.py` for its converter and `tests/op/qnn/test_lut.py` for its test: one
model from `aot.testing` and one call of `check` compare the reference, `evaluate`, the interpreted kernel and the compiled one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import QuantParams, TensorType, Type
from aot.numerics.fixed_point import clamp_array
from aot.op.common.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, clamp, imm


@dataclass(frozen=True, slots=True)
class NegateAttrs:
    """Integers only: a front end has converted every real number. `quant` is for the result's type."""

    input_zp: int
    zero_point: int
    quant: QuantParams | None = None


def infer_type(types: Sequence[Type], attrs: NegateAttrs) -> Type:
    """int8 -> int8 of the same shape. Any contradiction in the types is a TypeRuleError."""
    (data,) = types
    if not isinstance(data, TensorType) or data.dtype != "int8":
        raise TypeRuleError(f"negate needs an int8 tensor, not {data}")
    return data.with_dtype("int8", attrs.quant)


def evaluate(data: Array, *, attrs: NegateAttrs, out_type: TensorType) -> Array:
    """The meaning, exact and vectorised; whole models run through it."""
    return clamp_array(attrs.zero_point - (data.astype(np.int64) - attrs.input_zp), -128, 127, out_type.dtype)


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: NegateAttrs, out_type: TensorType) -> TensorFn:
    """One element as an expression over elements of the operands, in int32 without overflow.

    Reductions append loops with `aot.te.tensor.sum`; tables in flash come from `ctx.constant`.  An operand may be the result of
    another rule that appends statements, so read it inside a branch (`b.if_`) if its index may be out of range.
    """

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        value = imm(attrs.zero_point + attrs.input_zp) - cast("int32", args[0].at(b, i))
        return cast("int8", clamp(value, -128, 127))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "template.negate",
    1,
    arguments=[("data", "int8", "the operand")],
    attrs_type=NegateAttrs,
    pattern=OpPattern.ELEMWISE,  # how fuse_ops may group it: see OpPattern
    infer_type=infer_type,
    evaluate=evaluate,
    doc="one line for `aot ops`: TFLite operator and element types",
)
F_TE.set("template.negate", te_rule)
