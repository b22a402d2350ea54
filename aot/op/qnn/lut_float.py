"""qnn.lut_float: int8 to float32 through a table of 256 values: functions of a DEQUANTIZE, where their result stays a float."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast


@dataclass(frozen=True, slots=True)
class LutFloatAttrs:
    """`table[q + 128]` is the result for value q."""

    table: tuple[float, ...]


def infer_type(types: Sequence[Type], attrs: LutFloatAttrs) -> Type:
    """int8 -> float32 of the same shape."""
    (data,) = types
    if not isinstance(data, TensorType) or data.dtype != "int8":
        raise TypeRuleError(f"lut_float takes an int8 tensor, not {data}")
    if len(attrs.table) != 256:
        raise TypeRuleError("lut_float needs a table of 256 numbers")
    return data.with_dtype("float32")


def evaluate(data: Array, *, attrs: LutFloatAttrs, out_type: TensorType) -> Array:
    return np.asarray(np.asarray(attrs.table, np.float32)[data.astype(np.int64) + 128])


def te_rule(ctx: TeContext, args: Sequence[TensorFn], attrs: LutFloatAttrs, out_type: TensorType) -> TensorFn:
    # in the order of the quantised values' bits, so that a byte indexes it as it is
    table = ctx.constant("table", np.roll(np.asarray(attrs.table, np.float32), 128))

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        return table.at(b, (cast("int32", cast("uint8", args[0].at(b, i))),))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "qnn.lut_float",
    1,
    arguments=[("data", "int8", "indices into the table")],
    attrs_type=LutFloatAttrs,
    pattern=OpPattern.ELEMWISE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="functions of one int8 value whose result is float32: DEQUANTIZE with LOGISTIC, EXP, TANH ... behind it",
)
F_TE.set("qnn.lut_float", te_rule)
