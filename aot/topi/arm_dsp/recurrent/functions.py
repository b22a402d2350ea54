"""Sigmoid and tanh of an LSTM's gates and cells in blocks of assembly: computed, or from tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from aot.ir.op import Array
from aot.op.recurrent import lstm_integer
from aot.op.recurrent.lstm_integer import LstmAttrs
from aot.op.te_rule import TeContext
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr
from aot.tir.intrin import TensorIntrin
from aot.topi.arm_dsp.recurrent import intrin
from aot.topi.arm_dsp.recurrent.table16 import HalfTable, half_table, look_up
from aot.topi.generic.lstm_integer import GATE_BITS, Functions
from aot.topi.intrin.scalar import saturate

_SCALAR = 30
"""Instructions of TFLM's functions as scalar code, about."""


class Computed(Functions):
    """gemmlowp's functions by recurrent/intrin.py; TFLM's as scalar code."""

    def __init__(self, b: IRBuilder, ctx: TeContext, attrs: LstmAttrs) -> None:
        super().__init__(b, ctx, attrs)
        self._constants: dict[str, Buffer] = {}

    def sigmoid(self, values: Sequence[Expr]) -> list[Expr]:
        if self.attrs.is_tflm:
            return super().sigmoid(values)
        return self._block(intrin.sigmoid16(len(values)), GATE_BITS, values)

    def tanh(self, x: Expr, bits: int = GATE_BITS) -> Expr:
        if self.attrs.is_tflm:
            return super().tanh(x, bits)
        if bits > intrin.MOST_BITS:
            x, bits = _shifted(x, bits - intrin.MOST_BITS), intrin.MOST_BITS
        return self._block(intrin.tanh16(1, bits), bits + 1, [x])[0]

    def _block(self, block: TensorIntrin, bits: int, values: Sequence[Expr]) -> list[Expr]:
        return self._on_values(block, [self._constant(f"exp{bits}", intrin.numbers(bits))], values)

    def _constant(self, name: str, data: Array) -> Buffer:
        if name not in self._constants:
            buffer = self.b.const(name, data.shape, str(data.dtype))
            self.ctx.constants[buffer.name] = data
            self._constants[name] = buffer
        return self._constants[name]

    def _on_values(self, block: TensorIntrin, arrays: Sequence[Buffer], values: Sequence[Expr]) -> list[Expr]:
        """The block's results, in registers."""
        local = self.b.local("values", (len(values),), "int32")
        for i, value in enumerate(values):
            self.b.store(local, i, value)
        self.b.block(block, *arrays, local)
        return [self.b.let("value", local[i]) for i in range(len(values))]

    def instructions(self) -> int:
        """Of one cell."""
        tanh = [GATE_BITS, *([min(self.attrs.cell_bits, intrin.MOST_BITS)] if self.attrs.has_cell_tanh else [])]
        if self.attrs.is_tflm:
            return _SCALAR * (self.attrs.gates - 1 + len(tanh))
        return (self.attrs.gates - 1) * (intrin.instructions(None) + 2) + sum(intrin.instructions(b) + 5 for b in tanh)


class Tabulated(Computed):
    """From tables of all their values."""

    def __init__(self, b: IRBuilder, ctx: TeContext, attrs: LstmAttrs) -> None:
        super().__init__(b, ctx, attrs)
        found = tables(attrs)
        assert found is not None
        self._sigmoid, self._gate, self._cell = found

    def table(self) -> None:
        return None

    def sigmoid(self, values: Sequence[Expr]) -> list[Expr]:
        return self._look_up("sigmoid", self._sigmoid, values)

    def tanh(self, x: Expr, bits: int = GATE_BITS) -> Expr:
        if not self.attrs.is_tflm and bits > GATE_BITS:
            x, bits = _shifted(x, bits - GATE_BITS), GATE_BITS
        return self._look_up(f"tanh{bits}", self._gate if bits == GATE_BITS else self._cell, [x])[0]

    def _look_up(self, name: str, table: HalfTable, values: Sequence[Expr]) -> list[Expr]:
        arrays = [self._constant(f"{name}_base", table.base), self._constant(f"{name}_rest", table.rest)]
        return self._on_values(look_up(len(values), table.shift, table.mirror), arrays, values)

    def instructions(self) -> int:
        return (self.attrs.gates - 1) * self._sigmoid.instructions + self._gate.instructions + self._cell.instructions + 10


def tables(attrs: LstmAttrs) -> tuple[HalfTable, HalfTable, HalfTable] | None:
    """Of sigmoid, of tanh of a gate and of tanh of the cell, which may be the same; None where one has no table.

    TFLM's tanh of fewer integer bits rounds its argument, and has none.
    """
    bits = attrs.cell_bits if attrs.is_tflm or (attrs.has_cell_tanh and attrs.cell_bits < GATE_BITS) else GATE_BITS
    sigmoid, gate, cell = (_table(attrs.activation, b) for b in (None, GATE_BITS, bits))
    return None if sigmoid is None or gate is None or cell is None else (sigmoid, gate, cell)


@cache
def _table(activation: str, bits: int | None) -> HalfTable | None:
    """Of tanh of arguments with `bits` integer bits, or of sigmoid."""
    attrs = replace(_ATTRS, activation=activation)

    def function(x: Array) -> Array:
        return lstm_integer.sigmoid(x, attrs) if bits is None else lstm_integer.tanh(x, attrs, bits)

    return half_table(function)


_ATTRS = LstmAttrs(True, (), (), (0, 15), (0, 15), GATE_BITS, (0, 0), 0)


def _shifted(x: Expr, places: int) -> Expr:
    """x * 2^places within int16: where tanh of three integer bits saturates, so does that of more."""
    return saturate("ssat", 16)(x * (1 << places))
