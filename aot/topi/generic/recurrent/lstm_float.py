"""nn.lstm step by step, batch by batch: all gates of a step, then the cells, then the outputs.

Scratch: the gates of one step, and the hidden values where there is a projection.  The states are written in place of results.
"""

from __future__ import annotations

from collections.abc import Callable

from aot.ir.type import TupleType
from aot.numerics.elementary import MATH
from aot.op.common.lanes import LANES, tir_eigen_sum
from aot.op.common.sequence import Sequences
from aot.op.recurrent.lstm_float import LstmFloatAttrs
from aot.relay.expr import Constant, tensor_type
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, imm, logical_and, minimum, select
from aot.tir.function import FuncAttrs
from aot.topi.generic.integer_vector import IntegerVectors
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl


@dataclass(frozen=True, slots=True)
class Step:
    """The batch, and where its data, auxiliary data, results and states begin."""

    batch: Expr
    data: Expr
    auxiliary: Expr
    result: Expr
    output: Expr
    cell: Expr


class LstmFloatKernel:
    """The kernel under construction."""

    def __init__(self, group: Group, name: str) -> None:
        self.b = IRBuilder(name)
        self.attrs: LstmFloatAttrs = group.anchor.attrs
        args, self.constants = group.anchor.args, {}
        buffers = {id(v): self.b.input("data", (v.type.size,), "float32") for v in group.params}
        self.vectors = IntegerVectors(self.b, asymmetric=self.attrs.asymmetric)
        for arg in args:
            if isinstance(arg, Constant) and id(arg) not in buffers:
                buffers[id(arg)] = self.b.const("weight", (arg.type.size,), arg.type.dtype)
                self.constants[buffers[id(arg)].name] = arg.data.reshape(-1)
        self.data, self.first_output, self.first_cell, *others = (buffers[id(a)] for a in args)
        self.operands = dict(zip(self.attrs.names(), others, strict=True))
        assert isinstance(group.anchor.type, TupleType)
        types = group.anchor.type.fields
        self.out, self.output, self.cell = (self.b.output("out", (t.size,), "float32") for t in types)
        self.sizes = Sequences(tensor_type(args[0]).shape, time_major=self.attrs.time_major)
        self.outputs, self.cells = types[1].shape[1], types[2].shape[1]
        self.extra = self.operands["auxiliary"].size // (self.sizes.steps * self.sizes.batch) if self.attrs.auxiliary else 0
        self.gates = self.b.scratch("gates", (self.attrs.gates * self.cells,), "float32")
        self.span = group.anchor.span

    # ---- the sequence

    def lower(self) -> Lowered:
        b, sizes = self.b, self.sizes
        for source, target in ((self.first_output, self.output), (self.first_cell, self.cell)):
            with b.for_("i", target.size) as i:
                b.store(target, i, source[i])
        self._loop("batch", sizes.batch, lambda batch: self._loop("t", sizes.steps, lambda t: self._step(batch, t)))
        attrs = FuncAttrs(kernel="generic.lstm_float", span=self.span, macs=self.macs())
        return Lowered(b.finish(attrs), self.constants)

    def macs(self) -> int:
        step = self.attrs.gates * self.cells * (self.sizes.depth + self.outputs + self.extra)
        step += self.outputs * self.cells * self.attrs.projection
        return self.sizes.steps * self.sizes.batch * step

    def _loop(self, name: str, extent: int, body: Callable[[Expr], None]) -> None:
        if extent == 1:
            body(imm(0))
            return
        with self.b.for_(name, extent) as var:
            body(var)

    def _step(self, batch: Expr, t: Expr) -> None:
        b, sizes, attrs = self.b, self.sizes, self.attrs
        at = imm(sizes.steps - 1) - t if attrs.backward else t
        place = b.let("place", at * sizes.batch + batch if attrs.time_major else batch * sizes.steps + at)
        firsts = (place * sizes.depth, place * self.extra, place * self.outputs, batch * self.outputs, batch * self.cells)
        step = Step(batch, *firsts)
        self._prepare(step)
        for gate in range(attrs.gates - 1):
            self._gate(gate, step)
        with b.for_("n", self.cells) as n:
            self._cell(n, step)
        self._gate(attrs.gates - 1, step)
        self._results(step)

    # ---- gates

    def _gate(self, gate: int, step: Step) -> None:
        """A gate with its function."""
        b = self.b
        finish = self._normalized(gate, step) if self.attrs.norm else lambda n: self._sum(gate, n, step)
        if gate == self.attrs.cell_gate:
            with b.for_("n", self.cells) as n:
                b.store(self.gates, n + gate * self.cells, self._activated(finish(n)))
            return
        start, stop = self._vectors(gate, step.batch)
        with b.for_("n", self.cells) as n:
            value = b.let("value", finish(n))
            self._sigmoid(gate, n, value, start, stop)

    def _sigmoid(self, gate: int, n: Expr, value: Expr, start: Expr, stop: Expr) -> None:
        """Of a vector between `start` and `stop`, else of single elements."""
        b, place = self.b, n + gate * self.cells
        if self.cells % LANES == 0:
            b.store(self.gates, place, MATH["eigen_logistic"](value))
            return
        with b.if_(logical_and(n >= start, n < stop)):
            b.store(self.gates, place, MATH["eigen_logistic"](value))
        with b.else_():
            b.store(self.gates, place, MATH["eigen_scalar_logistic"](value))

    def _vectors(self, gate: int, batch: Expr) -> tuple[Expr, Expr]:
        """`first_vector` of a batch."""
        b, n = self.b, self.cells
        before = (batch + self.attrs.scratch_place(gate) * self.sizes.batch) * n
        lead = b.let("lead", minimum((imm(LANES) - before % LANES) % LANES, imm(n)))
        return lead, b.let("last", lead + (imm(n) - lead) / LANES * LANES)

    def _prepare(self, step: Step) -> None:
        """Hybrid ones' vectors of a step as integers."""
        if self.attrs.scales:
            self.vectors.quantize("input", self.data, step.data, self.sizes.depth)
            self.vectors.quantize("recurrent", self.output, step.output, self.outputs)
            if self.attrs.auxiliary:
                self.vectors.quantize("auxiliary_weight", self.operands["auxiliary"], step.auxiliary, self.extra)

    def _product(self, name: str, row: Expr, data: tuple[Buffer, Expr], depth: int, *, rows: int, gate: int = 0) -> Expr:
        """A row of a matrix times a vector."""
        base = self.b.let("row", row * depth)
        if self.attrs.scales:
            return self.vectors.product(name, (self.operands[name], base), depth, scale=self.attrs.scale(name, gate))
        column = self.b.let("column", data[1])
        matrix = self.operands[name]
        return tir_eigen_sum(self.b, depth, lambda k: matrix[base + k] * data[0][column + k], single=rows == 1)

    def _sum(self, gate: int, n: Expr, step: Step) -> Expr:
        """A gate's value before normalisation and function."""
        b, attrs, operands = self.b, self.attrs, self.operands
        index = b.let("index", n + gate * self.cells)
        bias = imm(0.0, "float32") if attrs.norm else operands["bias"][index]
        value: Expr = b.let(
            "sum", self._product("input", index, (self.data, step.data), self.sizes.depth, rows=self.cells, gate=gate) + bias
        )
        if attrs.auxiliary:
            data = (operands["auxiliary"], step.auxiliary)
            value = b.let("sum", self._product("auxiliary_weight", index, data, self.extra, rows=self.cells, gate=gate) + value)
        last = (self.output, step.output)
        value = self._product("recurrent", index, last, self.outputs, rows=self.cells, gate=gate) + value
        if attrs.peephole and gate != attrs.cell_gate:
            total = b.let("sum", value)
            value = total + operands["peephole"][n + attrs.peephole_of(gate) * self.cells] * self.cell[step.cell + n]
        return value

    def _normalized(self, gate: int, step: Step) -> Callable[[Expr], Expr]:
        """Statements for the whole gate; then its values one by one."""
        b, base = self.b, gate * self.cells
        total, squares = b.local("total", (1,), "float32", init=0.0), b.local("squares", (1,), "float32", init=0.0)
        with b.for_("n", self.cells) as n:
            value = b.let("value", self._sum(gate, n, step))
            b.store(self.gates, n + base, value)
            b.store(total, 0, total[0] + value)
        count = imm(float(self.cells), "float32")
        mean = b.let("mean", total[0] / count)
        with b.for_("n", self.cells) as n:
            difference = b.let("difference", self.gates[n + base] - mean)
            b.store(squares, 0, squares[0] + difference * difference)
        deviation = MATH["sqrt"](squares[0] / count + imm(1e-8, "float32"))
        inverse = b.let("inverse", imm(1.0, "float32") / deviation)
        norm, bias = self.operands["norm"], self.operands["bias"]
        return lambda n: (self.gates[n + base] - mean) * inverse * norm[n + base] + bias[n + base]

    # ---- functions, cells, outputs

    def _activated(self, x: Expr) -> Expr:
        x, zero = self.b.let("x", x), imm(0.0, "float32")
        match self.attrs.activation:
            case "TANH":
                return MATH["eigen_tanh"](x)
            case "RELU":
                return select(x > zero, x, zero)
            case "RELU6":
                return _bounded(x, 0.0, 6.0)
        return _bounded(x, -1.0, 1.0)

    def _cell(self, n: Expr, step: Step) -> None:
        b, attrs = self.b, self.attrs
        forget = b.let("forget", self.gates[n + (attrs.cell_gate - 1) * self.cells])
        entry = self.gates[n] if attrs.gates == 4 else imm(1.0, "float32") - forget
        place = b.let("place", step.cell + n)
        kept = forget * self.cell[place]
        value = b.let("value", kept + self.gates[n + attrs.cell_gate * self.cells] * entry)
        b.store(self.cell, place, _clipped(value, attrs.cell_clip))

    def _hidden(self, n: Expr, step: Step) -> Expr:
        cell = self._activated(self.cell[step.cell + n])
        return self.gates[n + (self.attrs.gates - 1) * self.cells] * cell

    def _results(self, step: Step) -> None:
        b, attrs = self.b, self.attrs
        if not attrs.projection:
            with b.for_("n", self.cells) as n:
                self._keep(n, self._hidden(n, step), step)
            return
        hidden = b.scratch("hidden", (self.cells,), "float32")
        with b.for_("n", self.cells) as n:
            b.store(hidden, n, self._hidden(n, step))
        if attrs.scales:
            self.vectors.quantize("projection", hidden, imm(0), self.cells)
        with b.for_("o", self.outputs) as o:
            value = self._product("projection", o, (hidden, imm(0)), self.cells, rows=self.outputs)
            value = value + (self.operands["projection_bias"][o] if attrs.projection_bias else imm(0.0, "float32"))
            self._keep(o, _clipped(b.let("value", value), attrs.projection_clip), step)

    def _keep(self, o: Expr, value: Expr, step: Step) -> None:
        value = self.b.let("value", value)
        self.b.store(self.output, step.output + o, value)
        self.b.store(self.out, step.result + o, value)


def _bounded(x: Expr, low: float, high: float) -> Expr:
    lowest, highest = imm(low, "float32"), imm(high, "float32")
    return select(x < lowest, lowest, select(x > highest, highest, x))


def _clipped(x: Expr, most: float) -> Expr:
    return _bounded(x, -most, most) if most > 0 else x


def lower(group: Group, _target: Target, name: str) -> Lowered:
    return LstmFloatKernel(group, name).lower()


def accepts_float(group: Group, _target: Target) -> bool:
    """One call, whose weights are constants."""
    attrs = group.anchor.attrs
    named = zip(attrs.names(), group.anchor.args[3:], strict=True)
    return not group.followers and all(isinstance(a, Constant) for name, a in named if name != "auxiliary")


register_impl(OpImplementation("generic.lstm_float", "nn.lstm", accepts_float, lower))
