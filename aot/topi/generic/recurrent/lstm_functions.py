"""Sigmoid and tanh of the gates and cells of qnn.lstm."""

from __future__ import annotations

from collections.abc import Sequence

from aot.numerics.fixed16 import SIGMOID16, TANH16
from aot.op.qnn.lut16 import sigmoid_table, tir_sigmoid16
from aot.op.recurrent.lstm_integer import LstmAttrs, table_attrs
from aot.op.te_rule import TeContext
from aot.te.tensor import TensorFn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, imm

GATE_BITS = 3
"""Integer bits of a gate."""


class Functions:
    """As scalar code: gemmlowp's functions, or TFLM's with their table.  Arguments and results are int32 within int16."""

    def __init__(self, b: IRBuilder, ctx: TeContext, attrs: LstmAttrs) -> None:
        self.b, self.ctx, self.attrs = b, ctx, attrs
        self._table: TensorFn | None = self.table()

    def table(self) -> TensorFn | None:
        """TFLM's."""
        return self.ctx.constant("sigmoid", sigmoid_table()) if self.attrs.is_tflm else None

    def sigmoid(self, values: Sequence[Expr]) -> list[Expr]:
        """Of gates."""
        return [SIGMOID16(x) if self._table is None else self._from_table("logistic", x, GATE_BITS) for x in values]

    def tanh(self, x: Expr, bits: int = GATE_BITS) -> Expr:
        """Of a gate or, with its integer bits, of the cell."""
        return TANH16(x, imm(bits)) if self._table is None else self._from_table("tanh", x, bits)

    def _from_table(self, name: str, x: Expr, bits: int) -> Expr:
        assert self._table is not None
        return cast("int32", tir_sigmoid16(self.b, x, self._table, table_attrs(name, bits)))
