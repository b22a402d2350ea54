"""qnn.lstm with integers only: gates, cells and outputs step by step, with sigmoid and tanh in fixed point."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from aot.ir.type import TupleType
from aot.numerics.fixed_point import (
    SIGMOID16,
    TANH16,
    tir_inverse_sqrt,
    tir_multiply_by_quantized_multiplier,
    tir_multiply_wide,
    tir_rounding_divide_by_pot,
)
from aot.op.common.te_rule import TeContext
from aot.op.qnn.lut import sigmoid_table, tir_sigmoid16
from aot.op.recurrent.lstm import LstmAttrs, Scale, peephole_of, table_attrs
from aot.op.recurrent.rnn import Sequences
from aot.relay.expr import Constant, tensor_type
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range
from aot.target.target import Target
from aot.te.tensor import TensorFn
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, clamp, imm, select
from aot.tir.function import FuncAttrs
from aot.topi.layer.planes import counted
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl

GATE_BITS = 3
"""Integer bits of a gate."""


class Functions:
    """Sigmoid and tanh as scalar code: gemmlowp's functions, or TFLM's with their table.  Arguments and results are int32 within
    int16.
    """

    def __init__(self, b: IRBuilder, ctx: TeContext, attrs: LstmAttrs) -> None:
        self.b, self.ctx, self.attrs = b, ctx, attrs
        self._table: TensorFn | None = self.table()

    def table(self) -> TensorFn | None:
        """TFLM's table."""
        return self.ctx.constant("sigmoid", sigmoid_table()) if self.attrs.is_tflm else None

    def sigmoid(self, values: Sequence[Expr]) -> list[Expr]:
        """Sigmoid of gate values."""
        return [SIGMOID16(x) if self._table is None else self._from_table("logistic", x, GATE_BITS) for x in values]

    def tanh(self, x: Expr, bits: int = GATE_BITS) -> Expr:
        """tanh of a gate or, given its integer bits, of the cell."""
        return TANH16(x, imm(bits)) if self._table is None else self._from_table("tanh", x, bits)

    def _from_table(self, name: str, x: Expr, bits: int) -> Expr:
        assert self._table is not None
        return cast("int32", tir_sigmoid16(self.b, x, self._table, table_attrs(name, bits)))


# qnn.lstm step by step: all gates of a step, then the cells, then the outputs.
#
# Scratch memory: the gates of one step, two bytes each, and the hidden values if there is a projection.  The states are kept in
# their result buffers: a step reads all outputs that it needs before it overwrites them.


@dataclass(frozen=True, slots=True)
class Sizes:
    """`rows`: batch entries per step; `outer`: passes over the sequence; one of the two is 1."""

    steps: int
    rows: int
    outer: int
    depth: int
    cells: int
    outputs: int


@dataclass(frozen=True, slots=True)
class Step:
    """Where the data and results of one step, and the states of its rows, begin."""

    data: Expr
    result: Expr
    output: Expr
    cell: Expr


class LstmKernel:
    """The kernel under construction."""

    kind = "generic.lstm"

    def __init__(self, group: Group, name: str, *, packed: bool = False) -> None:
        """`packed`: a derived class has its own form of both matrices and their biases."""
        self.b = IRBuilder(name)
        self.attrs: LstmAttrs = group.anchor.attrs
        self.ctx = TeContext(self.b)
        buffers = {id(v): self.b.input("data", (v.type.size,), v.type.dtype) for v in group.params}
        args = group.anchor.args
        for arg in args[7:] if packed else args:
            if isinstance(arg, Constant) and id(arg) not in buffers:
                buffers[id(arg)] = self.b.const("weight", (arg.type.size,), arg.type.dtype)
                self.ctx.constants[buffers[id(arg)].name] = arg.data.reshape(-1)
        self.data, self.first_output, self.first_cell = (buffers[id(a)] for a in args[:3])
        self.matrices = [] if packed else [buffers[id(a)] for a in args[3:7]]
        self.others = [buffers[id(a)] for a in args[7:]]
        assert isinstance(group.anchor.type, TupleType)
        types = group.anchor.type.fields
        self.out, self.output, self.cell = (self.b.output("out", (prod(t.shape),), t.dtype) for t in types)
        self.sizes = _sizes(group, self.attrs)
        if self.keeps_gates:
            self.gates = self.b.scratch("gates", (self.attrs.gates * self.sizes.rows * self.sizes.cells,), "int16")
        self.functions = self.make_functions()
        self.span = group.anchor.span

    @property
    def keeps_gates(self) -> bool:
        """Whether all gates of a step are computed before the cells."""
        return True

    def make_functions(self) -> Functions:
        return Functions(self.b, self.ctx, self.attrs)

    # ---- the sequence

    def lower(self) -> Lowered:
        b, s = self.b, self.sizes
        for source, target in ((self.first_output, self.output), (self.first_cell, self.cell)):
            with b.for_("i", target.size) as i:
                b.store(target, i, source[i])
        for batch in counted(b, s.outer, "batch"):
            for t in counted(b, s.steps, "t"):
                self.step(self._place(batch, t))
        attrs = FuncAttrs(kernel=self.kind, span=self.span, macs=self.macs())
        return Lowered(b.finish(attrs), dict(self.ctx.constants), instructions=self.instructions())

    def instructions(self) -> int:
        """Instructions per call (estimate from counts under QEMU)."""
        s = self.sizes
        return 5 * self.macs() + 700 * s.steps * s.rows * s.outer * s.cells

    def macs(self) -> int:
        s, attrs = self.sizes, self.attrs
        step = attrs.gates * s.cells * (s.depth + s.outputs) + (s.outputs * s.cells if attrs.projection_scale else 0)
        return s.steps * s.rows * s.outer * step

    def _place(self, batch: Expr, t: Expr) -> Step:
        s = self.sizes
        place = self.b.let("place", batch * s.steps + t)
        return Step(place * (s.rows * s.depth), place * (s.rows * s.outputs), batch * s.outputs, batch * s.cells)

    def step(self, step: Step) -> None:
        """All gates, then the cells, then the outputs."""
        s = self.sizes
        for row in counted(self.b, s.rows, "row"):
            self.sums(row, step)
        cell_gate = self.attrs.cell_gate
        for gate in range(self.attrs.gates - 1):
            self._refine(gate, step)
        with self.b.for_("i", s.rows * s.cells) as i:
            self._cell(i, step, cell_gate)
        self._refine(self.attrs.gates - 1, step)
        self._outputs(step)

    # ---- gates

    def sums(self, row: Expr, step: Step) -> None:
        """The gates of a row before their functions: both matrix products."""
        for gate in range(self.attrs.gates):
            with self.b.for_("n", self.sizes.cells) as n:
                self._sum(gate, n, row, step)

    def _sum(self, gate: int, n: Expr, row: Expr, step: Step) -> None:
        b, s, attrs = self.b, self.sizes, self.attrs
        weight, recurrent, bias, recurrent_bias = self.matrices
        index = b.let("index", n + gate * s.cells)
        value = self._dot(bias[index], (weight, index * s.depth), (self.data, step.data + row * s.depth), s.depth)
        first = b.let("first", saturated(self.scaled(value, attrs.input_scales[gate])))
        last = (self.output, step.output + row * s.outputs)
        value = self._dot(recurrent_bias[index], (recurrent, index * s.outputs), last, s.outputs)
        self.add(gate, row * s.cells + n, first, self.scaled(value, attrs.recurrent_scales[gate]))

    def add(self, gate: int, i: Expr, first: Expr, share: Expr) -> None:
        """Store a gate's value before its function: the sum of both products' shares, saturated."""
        total = first + (saturated(share) if self.attrs.is_tflm else share)
        self.b.store(self.gates, self.gate(gate, i), saturated(total))

    def gate(self, gate: int, i: Expr) -> Expr:
        """Where value i of a gate is stored."""
        return i + gate * self.sizes.rows * self.sizes.cells

    def _dot(self, bias: Expr, weight: tuple[Buffer, Expr], data: tuple[Buffer, Expr], depth: int) -> Expr:
        b = self.b
        acc = b.local("acc", (1,), bias.dtype, init=bias)
        row, column = b.let("row", weight[1]), b.let("column", data[1])
        with b.for_("k", depth) as k:
            product = cast("int32", weight[0][row + k]) * cast("int32", data[0][column + k])
            b.store(acc, 0, acc[0] + cast(bias.dtype, product))
        return acc[0]

    def scaled(self, value: Expr, scale: Scale) -> Expr:
        """A sum of products in a gate's scale."""
        value = self.b.let("value", value)
        if value.dtype == "int64":
            return tir_multiply_wide(self.b, value, *scale, reduced=True)
        return tir_multiply_by_quantized_multiplier(self.b, value, *scale)

    def _refine(self, gate: int, step: Step) -> None:
        """Peephole and layer normalisation of a gate."""
        if self.attrs.peephole_scales and gate != self.attrs.cell_gate:
            for row in counted(self.b, self.sizes.rows, "row"):
                self._peephole(gate, row, step)
        if self.attrs.norm:
            for row in counted(self.b, self.sizes.rows, "row"):
                self._normalize(gate, row)

    def _peephole(self, gate: int, row: Expr, step: Step) -> None:
        """Like the reference, which assumes as many cells as outputs and contiguous rows."""
        b, s = self.b, self.sizes
        number = peephole_of(self.attrs, gate)
        with b.for_("n", s.outputs) as n:
            i = b.let("i", row * s.outputs + n)
            share = cast("int32", self.others[0][n + number * s.cells]) * cast("int32", self.cell[step.cell + i])
            scaled = self.scaled(share, self.attrs.peephole_scales[number])
            b.store(self.gates, self.gate(gate, i), saturated(cast("int32", self.gates[self.gate(gate, i)]) + scaled))

    def _normalize(self, gate: int, row: Expr) -> None:
        b, cells = self.b, self.sizes.cells
        weight, bias = self.others[1:3] if self.attrs.peephole_scales else self.others[:2]
        multiplier, shift, least = self.attrs.norm[gate]
        base = b.let("base", self.gate(gate, row * cells))
        total, squares = b.local("total", (1,), "int32", init=0), b.local("squares", (1,), "int64", init=0)
        with b.for_("n", cells) as n:
            x = b.let("x", cast("int32", self.gates[base + n]))
            b.store(total, 0, total[0] + x)
            b.store(squares, 0, squares[0] + cast("int64", x * x))
        mean = b.let("mean", cast("int32", cast("int64", total[0]) * 1024 / cells))
        spread = squares[0] * ((1 << 20) // cells) - cast("int64", mean) * cast("int64", mean)
        variance = b.let("variance", cast("int32", spread / (1 << 20)))
        inverse, exponent = tir_inverse_sqrt(b, select(variance < 1, imm(least), variance))
        with b.for_("n", cells) as n:
            shifted = cast("int32", self.gates[base + n]) * 1024 - mean
            scaled = tir_multiply_by_quantized_multiplier(b, shifted, inverse, exponent)
            index = n + gate * cells
            value = b.let("value", cast("int64", scaled) * cast("int64", weight[index]) + cast("int64", bias[index]))
            half = select(value > 0, imm(512, "int64"), imm(-512, "int64"))
            narrow = b.let("narrow", cast("int32", (value + half) / 1024))
            b.store(self.gates, base + n, saturated(tir_multiply_by_quantized_multiplier(b, narrow, multiplier, shift + 12)))

    # ---- functions, cells, outputs

    def _gate(self, gate: int, i: Expr) -> Expr:
        x = cast("int32", self.gates[self.gate(gate, i)])
        value = self.functions.tanh(x) if gate == self.attrs.cell_gate else self.functions.sigmoid([x])[0]
        return self.b.let("gate", value)

    def product(self, x: Expr, y: Expr, scale: Scale) -> Expr:
        """x * y, both within int16, in another scale."""
        multiplier, shift = scale
        value = self.b.let("product", x * y)
        if multiplier:
            return tir_multiply_by_quantized_multiplier(self.b, value, multiplier, shift)
        return tir_rounding_divide_by_pot(self.b, value, shift)

    def _cell(self, i: Expr, step: Step, cell_gate: int) -> None:
        place = self.b.let("place", step.cell + i)
        forget, update = self._gate(cell_gate - 1, i), self._gate(cell_gate, i)
        entry = self._gate(0, i) if self.attrs.gates == 4 else imm(32767) - forget
        self.b.store(self.cell, place, self.new_cell(place, entry, forget, update))

    def new_cell(self, place: Expr, entry: Expr, forget: Expr, update: Expr) -> Expr:
        """A cell's new value, from its gates."""
        b, attrs = self.b, self.attrs
        kept = b.let("kept", self.product(forget, cast("int32", self.cell[place]), attrs.forget_scale))
        change = self.product(entry, update, attrs.update_scale)
        if not attrs.has_cell_tanh:  # the shift is below 15; the reference then keeps the lower half
            change = cast("int32", cast("int16", change))
        value = self.saturated(kept + change)
        return clamp(value, -attrs.cell_clip, attrs.cell_clip) if attrs.cell_clip else value

    def saturated(self, x: Expr) -> Expr:
        """x, clamped to int16."""
        return saturated(x)

    def _hidden(self, i: Expr, step: Step, dtype: str) -> Expr:
        attrs = self.attrs
        if attrs.has_cell_tanh:
            cell = self.functions.tanh(cast("int32", self.cell[step.cell + i]), attrs.cell_bits)
        else:
            cell = self._gate(0, i)
        return self.hidden(self._gate(attrs.gates - 1, i), cell, dtype)

    def hidden(self, opened: Expr, cell: Expr, dtype: str) -> Expr:
        """The output (or the input of the projection): output gate times the function of the cell."""
        return clamp(self.product(opened, cell, self.attrs.hidden_scale) + self.attrs.hidden_zp, *int_range(dtype))

    def _outputs(self, step: Step) -> None:
        b, s = self.b, self.sizes
        if self.attrs.projection_scale is not None:
            self._project(step)
            return
        with b.for_("i", s.rows * s.outputs) as i:
            value = b.let("value", self._hidden(i, step, self.out.dtype))
            b.store(self.output, step.output + i, value)
            b.store(self.out, step.result + i, value)

    def _project(self, step: Step) -> None:
        b, s, attrs = self.b, self.sizes, self.attrs
        assert attrs.projection_scale is not None
        hidden = b.scratch("hidden", (s.rows * s.cells,), "int8", align=1)
        with b.for_("i", s.rows * s.cells) as i:
            b.store(hidden, i, self._hidden(i, step, "int8"))
        matrix, bias = self.others[-2:]
        low, high = int_range(self.out.dtype)
        with b.for_("row", s.rows) as row, b.for_("o", s.outputs) as o:
            value = self._dot(bias[o], (matrix, o * s.cells), (hidden, row * s.cells), s.cells)
            value = clamp(self.scaled(value, attrs.projection_scale) + attrs.output_zp, low, high)
            clip = attrs.projection_clip
            value = b.let("value", clamp(value, -clip, clip) if clip else value)
            b.store(self.output, step.output + (row * s.outputs + o), value)
            b.store(self.out, step.result + (row * s.outputs + o), value)


def saturated(x: Expr) -> Expr:
    """x, clamped to int16."""
    return clamp(x, -32768, 32767)


def _sizes(group: Group, attrs: LstmAttrs) -> Sizes:
    data, output, cell = (tensor_type(a) for a in group.anchor.args[:3])
    sequence = Sequences(data.shape, time_major=attrs.time_major)
    rows, outer = (sequence.batch, 1) if attrs.time_major else (1, sequence.batch)
    return Sizes(sequence.steps, rows, outer, sequence.depth, cell.shape[1], output.shape[1])


def accepts(group: Group, _target: Target) -> bool:
    """A single call whose weights are constants."""
    return not group.followers and all(isinstance(a, Constant) for a in group.anchor.args[3:])


def lower(group: Group, _target: Target, name: str) -> Lowered:
    return LstmKernel(group, name).lower()


register_impl(OpImplementation("generic.lstm", "qnn.lstm", accepts, lower))
