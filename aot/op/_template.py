"""template.negate: the operator's computation, as a formula in quantised values.

out = clamp(zp - (x - zp_in), -128, 127).  Oracle: name the reference kernel whose bytes `evaluate` reproduces.

Copy this into the file of the operator's family, or into a new one (files that start with an underscore are not loaded), keep the
order of its parts, and copy `aot/frontend/tflite/_template.py` for its converter and `tests/op/qnn/test_lut.py` for its test: one
model from `aot.testing` and one call of `check` compare the reference, `evaluate`, the interpreted kernel and the compiled one.
"""

from __future__ import annotations

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError
from aot.ir.type import QuantParams, TensorType, Type
from aot.numerics.fixed_point import clamp_array
from aot.op.common.operator import Index, operator
from aot.te.tensor import TensorFn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, clamp, imm


@operator(
    "template.negate",
    "one line for `aot ops`: TFLite operator and element types",
    [("data", "int8", "the operand")],
    OpPattern.ELEMWISE,
)
class NegateAttrs:
    """Integers only: a front end has converted every real number. `quant` is for the result's type."""

    input_zp: int
    zero_point: int
    quant: QuantParams | None = None

    def infer_type(self, data: TensorType) -> Type:
        """int8 -> int8 of the same shape. Any contradiction in the types is a TypeRuleError."""
        if data.dtype != "int8":
            raise TypeRuleError(f"negate needs an int8 tensor, not {data}")
        return data.with_dtype("int8", self.quant)

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        """The meaning, exact and vectorised; whole models run through it."""
        return clamp_array(self.zero_point - (data.astype(np.int64) - self.input_zp), -128, 127, out_type.dtype)

    def element(self, b: IRBuilder, i: Index, data: TensorFn, *, out_type: TensorType) -> Expr:
        """One element as an expression over elements of the operands, in int32 without overflow.

        Reductions append loops with `aot.te.tensor.sum`; if the rule needs tables in flash, write `te_rule` instead, as
        `aot/op/qnn/lut.py` does.  An operand may be the result of another rule that appends statements, so read it inside a
        branch (`b.if_`) if its index may be out of range.
        """
        value = imm(self.zero_point + self.input_zp) - cast("int32", data.at(b, i))
        return cast("int8", clamp(value, -128, 127))
