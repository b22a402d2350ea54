"""nn.lstm_basic: all gates of a row, then its cells and outputs.  The gates are a result, so there is no scratch."""

from __future__ import annotations

from aot.ir.type import TupleType
from aot.numerics.elementary import MATH
from aot.numerics.fixed16 import SIGMOID16, TANH16
from aot.numerics.fixed_point import tir_rounding_divide_by_pot
from aot.op.common.lanes import LANES, tir_eigen_sum
from aot.op.recurrent.lstm_basic import DATA_ZP, NAME, LstmBasicAttrs
from aot.relay.expr import Constant, tensor_type
from aot.target.target import Target
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, clamp, imm
from aot.tir.function import FuncAttrs
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl


class _Kernel:
    """What both types share: rows, gates, cells."""

    def __init__(self, group: Group, name: str) -> None:
        self.b = IRBuilder(name)
        self.attrs: LstmBasicAttrs = group.anchor.attrs
        self.batch, self.cells = tensor_type(group.anchor.args[1]).shape
        self.depth = tensor_type(group.anchor.args[0]).shape[1]
        buffers = {id(v): self.b.input("data", (v.type.size,), v.type.dtype) for v in group.params}
        self.constants = {}
        for arg in group.anchor.args:
            if isinstance(arg, Constant) and id(arg) not in buffers:
                buffers[id(arg)] = self.b.const("weight", (arg.type.size,), arg.type.dtype)
                self.constants[buffers[id(arg)].name] = arg.data.reshape(-1)
        self.data, self.last, self.weight, self.bias = (buffers[id(a)] for a in group.anchor.args)
        assert isinstance(group.anchor.type, TupleType)
        self.out, self.cell, self.gates = (self.b.output("out", (t.size,), t.dtype) for t in group.anchor.type.fields)
        self.span = group.anchor.span

    def lower(self) -> Lowered:
        b, rows = self.b, 4 * self.cells
        with b.for_("row", self.batch) as row:
            column, first = b.let("column", row * self.depth), b.let("first", row * rows)
            with b.for_("g", rows) as g:
                b.store(self.gates, first + g, self.sum(g, b.let("base", g * self.depth), column))
            with b.for_("n", self.cells) as n:
                entry, update, forget, opened = (self.gates[first + n + i * self.cells] for i in range(4))
                self.step(b.let("i", row * self.cells + n), n, (entry, update, forget, opened))
        macs = self.batch * rows * self.depth
        attrs = FuncAttrs(kernel="generic.lstm_basic", span=self.span, macs=macs)
        return Lowered(b.finish(attrs), self.constants, instructions=5 * macs + 700 * self.batch * self.cells)

    def sum(self, gate: Expr, base: Expr, column: Expr) -> Expr:
        """Value `gate` of a row; its weights begin at `base`, the data at `column`."""
        raise NotImplementedError

    def step(self, i: Expr, n: Expr, gates: tuple[Expr, Expr, Expr, Expr]) -> None:
        """Cell i, the n-th of its row, and the output."""
        raise NotImplementedError


class _Floats(_Kernel):
    def sum(self, gate: Expr, base: Expr, column: Expr) -> Expr:
        def term(k: Expr) -> Expr:
            return self.weight[base + k] * self.data[column + k]

        return tir_eigen_sum(self.b, self.depth, term, single=False) + self.bias[gate]

    def step(self, i: Expr, n: Expr, gates: tuple[Expr, Expr, Expr, Expr]) -> None:
        b, tanh = self.b, MATH["eigen_tanh"]
        entry, forget, opened = (self._sigmoid(gates[g], n) for g in (0, 2, 3))
        cell = b.let("cell", entry * tanh(gates[1]) + forget * self.last[i])
        b.store(self.cell, i, cell)
        b.store(self.out, i, opened * tanh(cell))

    def _sigmoid(self, x: Expr, n: Expr) -> Expr:
        """Of a vector, or of one of the last elements."""
        b, whole = self.b, self.cells - self.cells % LANES
        if whole == self.cells:
            return b.let("gate", MATH["eigen_logistic"](x))
        if whole == 0:
            return b.let("gate", MATH["eigen_scalar_logistic"](x))
        value = b.local("value", (1,), "float32")
        with b.if_(n < whole):
            b.store(value, 0, MATH["eigen_logistic"](x))
        with b.else_():
            b.store(value, 0, MATH["eigen_scalar_logistic"](x))
        return b.let("gate", value[0])


class _Integers(_Kernel):
    def sum(self, gate: Expr, base: Expr, column: Expr) -> Expr:
        b, attrs = self.b, self.attrs
        acc = b.local("acc", (1,), "uint32", init=cast("uint32", self.bias[gate]))
        with b.for_("k", self.depth) as k:
            x = cast("int32", self.data[column + k]) - DATA_ZP
            w = cast("int32", self.weight[base + k]) - attrs.weight_zp
            b.store(acc, 0, acc[0] + cast("uint32", x * w))
        total = acc[0] * (1 << attrs.shift) if attrs.shift > 0 else acc[0]
        value = (cast("int64", cast("int32", total)) * attrs.multiplier + (1 << 30)) >> 31
        if attrs.shift < 0:
            value = (value + (1 << (-attrs.shift - 1))) >> -attrs.shift
        return _saturated(b.let("gate", cast("int32", value)))

    def step(self, i: Expr, n: Expr, gates: tuple[Expr, Expr, Expr, Expr]) -> None:
        b = self.b
        values = [b.let("x", cast("int32", g)) for g in gates]
        entry, forget, opened = (b.let("gate", SIGMOID16(values[g])) for g in (0, 2, 3))
        update = b.let("update", TANH16(values[1], imm(3)))
        share = tir_rounding_divide_by_pot(b, _product(entry, update), 4)
        cell = b.let("cell", _saturated(share + _product(forget, cast("int32", self.last[i]))))
        b.store(self.cell, i, cell)
        hidden = _product(opened, b.let("tanh", TANH16(_saturated(cell * 2), imm(3))))
        b.store(self.out, i, clamp(tir_rounding_divide_by_pot(b, hidden, 8), -128, 127) + DATA_ZP)


def _product(x: Expr, y: Expr) -> Expr:
    """Of fractions of 15 bits, halves upwards."""
    return (x * y + (1 << 14)) >> 15


def _saturated(x: Expr) -> Expr:
    """Clamped to int16."""
    return clamp(x, -32768, 32767)


def accepts(group: Group, _target: Target) -> bool:
    """One call, whose weights are constants."""
    return not group.followers and all(isinstance(a, Constant) for a in group.anchor.args[2:])


def lower(group: Group, _target: Target, name: str) -> Lowered:
    kernel = _Floats if tensor_type(group.anchor.args[0]).dtype == "float32" else _Integers
    return kernel(group, name).lower()


register_impl(OpImplementation("generic.lstm_basic", NAME, accepts, lower))
