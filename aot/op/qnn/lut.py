"""qnn.lut: int8 to int8 through a table of 256 values.

The table holds the reference's result for each value, so the operator is exact for any function of one element.  `activation.py`
has the functions and their oracles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import QuantParams, TensorType, Type
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast


@dataclass(frozen=True, slots=True)
class LutAttrs:
    """`table[q + 128]` is the result for value q; the result's parameters."""

    table: tuple[int, ...]
    quant: QuantParams | None = None

    @property
    def lo(self) -> int:
        """The smallest result."""
        return min(self.table)

    @property
    def hi(self) -> int:
        """The largest result."""
        return max(self.table)

    def clipped(self, lo: int, hi: int) -> LutAttrs:
        """The same followed by a clamp to [lo, hi]."""
        return replace(self, table=tuple(min(max(v, lo), hi) for v in self.table))


def infer_type(types: Sequence[Type], attrs: LutAttrs) -> Type:
    """int8 -> int8 of the same shape."""
    (data,) = types
    if not isinstance(data, TensorType) or data.dtype != "int8":
        raise TypeRuleError(f"lut takes an int8 tensor, not {data}")
    if len(attrs.table) != 256 or not -128 <= min(attrs.table) <= max(attrs.table) <= 127:
        raise TypeRuleError("lut needs a table of 256 int8 codes")
    return data.with_dtype("int8", attrs.quant)


def evaluate(data: Array, *, attrs: LutAttrs, out_type: TensorType) -> Array:
    table: Array = np.asarray(attrs.table, np.int8)
    return np.asarray(table[data.astype(np.int64) + 128])


def te_rule(ctx: TeContext, args: Sequence[TensorFn], attrs: LutAttrs, out_type: TensorType) -> TensorFn:
    # in the order of the quantised values' bits, so that a byte indexes it as it is
    table = ctx.constant("table", np.roll(np.asarray(attrs.table, np.int8), 128))

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        return table.at(b, (cast("int32", cast("uint8", args[0].at(b, i))),))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "qnn.lut",
    1,
    arguments=[("data", "int8", "indices into the table")],
    attrs_type=LutAttrs,
    pattern=OpPattern.ELEMWISE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="functions of one int8 or uint8 value: LOGISTIC, TANH, RELU ..., ELU, GELU, HARD_SWISH, LEAKY_RELU, ABS, EXP, LOG, RSQRT",
)
F_TE.set("qnn.lut", te_rule)
