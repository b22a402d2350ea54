"""Recurrent layers: nn.lstm, nn.rnn (float32 data, weights of either type), qnn.lstm, nn.lstm_basic, and SVDF's memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from aot.ir.type import TensorType
from aot.numerics.elementary import MATH
from aot.numerics.fixed_point import (
    SIGMOID16,
    TANH16,
    tir_inverse_sqrt,
    tir_multiply_by_quantized_multiplier,
    tir_multiply_wide,
    tir_rounding_divide_by_pot,
)
from aot.op.common.layer import LANES, tir_eigen_sum, tir_lane_sum
from aot.op.common.te_rule import TeContext
from aot.op.qnn.lut import sigmoid_table, tir_sigmoid16
from aot.op.qnn.quantize import DynamicParamsAttrs, DynamicQuantizeAttrs, DynamicRange, integer_type
from aot.op.recurrent import (
    BOUNDS,
    DATA_ZP,
    LSTM_BASIC,
    LstmAttrs,
    LstmBasicAttrs,
    LstmFloatAttrs,
    RnnAttrs,
    Scale,
    Sequences,
    peephole_of,
    table_attrs,
)
from aot.relay.expr import Constant, tensor_type
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range, itemsize
from aot.target.target import Target
from aot.te.tensor import TensorFn
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, Imm, cast, clamp, imm, logical_and, minimum, select
from aot.tir.function import FuncAttrs, PrimFunc, Shift
from aot.topi.generic.flat import Cost, FlatKernel, accepts_weights, fill, flat_kernel, register_flat, summed
from aot.topi.layer.planes import counted
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl


def copied(b: IRBuilder, source: Buffer, target: Buffer) -> None:
    """Copy a state to the result in which it is kept."""
    fill(b, target, lambda i: source[i])


def each_step(b: IRBuilder, batches: int, steps: int, *states: tuple[Buffer, Buffer]) -> Iterator[tuple[Expr, Expr]]:
    """The loops over batches and steps, after each state (initial value, result) is copied to the result in which it is kept."""
    for source, target in states:
        copied(b, source, target)
    for batch in counted(b, batches, "batch"):
        for t in counted(b, steps, "t"):
            yield batch, t


def place_of(b: IRBuilder, sizes: Sequences, batch: Expr, t: Expr, *, backward: bool) -> Expr:
    """The number of a step's vector in the data."""
    at = imm(sizes.steps - 1) - t if backward else t
    return b.let("place", at * sizes.batch + batch if sizes.time_major else batch * sizes.steps + at)


def saturated(x: Expr) -> Expr:
    """x, clamped to int16."""
    return clamp(x, -32768, 32767)


def _bounded(x: Expr, low: float, high: float) -> Expr:
    lowest, highest = imm(low, "float32"), imm(high, "float32")
    return select(x < lowest, lowest, select(x > highest, highest, x))


class IntegerVectors:
    """The quantised vectors of a kernel, by name, in scratch memory."""

    def __init__(self, b: IRBuilder, *, asymmetric: bool) -> None:
        self._b, self._asymmetric = b, asymmetric
        self._dtype = integer_type(asymmetric)
        self._buffers: dict[str, Buffer] = {}
        self._scales: dict[str, Expr] = {}

    def quantize(self, name: str, data: Buffer, first: Expr, depth: int) -> None:
        """Emit the quantisation of `depth` values from element `first` on."""
        b = self._b
        vector = TensorFn((1, depth), "float32", lambda _b, i: data[first + i[1]])
        extremes = b.local("ends", (2,), "float32")
        for i in range(2):
            end = DynamicRange().element(b, (imm(0), imm(i)), vector, out_type=TensorType((1, 2), "float32"))
            b.store(extremes, i, end)
        ends = TensorFn((1, 2), "float32", lambda _b, i: extremes[i[1]])
        chosen, type_ = DynamicParamsAttrs(self._asymmetric), TensorType((1, 3), "float32")
        values = [b.let("param", chosen.element(b, (imm(0), imm(i)), ends, out_type=type_)) for i in range(3)]
        params = TensorFn((1, 3), "float32", lambda _b, i: values[int(i[1].value)] if isinstance(i[1], Imm) else i[1])
        integers, type_ = DynamicQuantizeAttrs(self._asymmetric), TensorType((1, depth), self._dtype)
        if name not in self._buffers:
            self._buffers[name] = b.scratch("integers", (depth,), self._dtype)
        with b.for_("k", depth) as k:
            b.store(self._buffers[name], k, integers.element(b, (imm(0), k), vector, params, out_type=type_))
        self._scales[name] = values[0]

    def product(self, name: str, row: tuple[Buffer, Expr], depth: int, *, scale: float) -> Expr:
        """The product of a matrix row (buffer, first element), with the given scale, and the vector."""

        def term(k: Expr) -> Expr:
            return cast("int32", row[0][row[1] + k]) * cast("int32", self._buffers[name][k])

        total = summed(self._b, "k", depth, term, name="acc", dtype="int32")
        return cast("float32", total) * (self._scales[name] * imm(scale, "float32"))


# nn.lstm step by step, batch by batch: all gates of a step, then the cells, then the outputs.
#
# Scratch memory: the gates of one step, and the hidden values if there is a projection.  States are kept in their result buffers.


@dataclass(frozen=True, slots=True)
class FloatStep:
    """The batch entry, and where its data, auxiliary data, results and states begin."""

    batch: Expr
    data: Expr
    auxiliary: Expr
    result: Expr
    output: Expr
    cell: Expr


class LstmFloatKernel:
    """The kernel under construction."""

    def __init__(self, kernel: FlatKernel) -> None:
        self.b = kernel.b
        self.attrs: LstmFloatAttrs = kernel.attrs
        self.vectors = IntegerVectors(self.b, asymmetric=self.attrs.asymmetric)
        self.data, self.first_output, self.first_cell, *others = kernel.args
        self.operands = dict(zip(self.attrs.names(), others, strict=True))
        self.out, self.output, self.cell = kernel.outs
        self.sizes = Sequences(kernel.shape(0), time_major=self.attrs.time_major)
        self.outputs, self.cells = kernel.shape(1)[1], kernel.shape(2)[1]
        self.extra = self.operands["auxiliary"].size // (self.sizes.steps * self.sizes.batch) if self.attrs.auxiliary else 0
        self.gates = self.b.scratch("gates", (self.attrs.gates * self.cells,), "float32")

    # ---- the sequence

    def lower(self) -> Cost:
        b, sizes = self.b, self.sizes
        states = (self.first_output, self.output), (self.first_cell, self.cell)
        for batch, t in each_step(b, sizes.batch, sizes.steps, *states):
            self._step(batch, place_of(b, sizes, batch, t, backward=self.attrs.backward))
        step = self.attrs.gates * self.cells * (sizes.depth + self.outputs + self.extra)
        step += self.outputs * self.cells * self.attrs.projection
        return Cost(macs=sizes.steps * sizes.batch * step)

    def _step(self, batch: Expr, place: Expr) -> None:
        depth, gates = self.sizes.depth, self.attrs.gates
        firsts = (place * depth, place * self.extra, place * self.outputs, batch * self.outputs, batch * self.cells)
        step = FloatStep(batch, *firsts)
        if self.attrs.scales:
            self.vectors.quantize("input", self.data, step.data, depth)
            self.vectors.quantize("recurrent", self.output, step.output, self.outputs)
            if self.attrs.auxiliary:
                self.vectors.quantize("auxiliary_weight", self.operands["auxiliary"], step.auxiliary, self.extra)
        for gate in range(gates - 1):
            self._gate(gate, step)
        with self.b.for_("n", self.cells) as n:
            self._cell(n, step)
        self._gate(gates - 1, step)
        self._results(step)

    # ---- gates

    def _gate(self, gate: int, step: FloatStep) -> None:
        """A gate, including its function."""
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
        """Sigmoid as in the reference: its vector form between `start` and `stop`, its scalar form elsewhere."""
        b, place = self.b, n + gate * self.cells
        if self.cells % LANES == 0:
            b.store(self.gates, place, MATH["eigen_logistic"](value))
            return
        with b.if_(logical_and(n >= start, n < stop)):
            b.store(self.gates, place, MATH["eigen_logistic"](value))
        with b.else_():
            b.store(self.gates, place, MATH["eigen_scalar_logistic"](value))

    def _vectors(self, gate: int, batch: Expr) -> tuple[Expr, Expr]:
        """`first_vector` of a batch entry."""
        b, n = self.b, self.cells
        before = (batch + self.attrs.scratch_place(gate) * self.sizes.batch) * n
        lead = b.let("lead", minimum((imm(LANES) - before % LANES) % LANES, imm(n)))
        return lead, b.let("last", lead + (imm(n) - lead) / LANES * LANES)

    def _product(self, name: str, row: Expr, data: tuple[Buffer, Expr], depth: int, *, rows: int, gate: int = 0) -> Expr:
        """A matrix row times a vector."""
        base = self.b.let("row", row * depth)
        if self.attrs.scales:
            return self.vectors.product(name, (self.operands[name], base), depth, scale=self.attrs.scale(name, gate))
        column = self.b.let("column", data[1])
        matrix = self.operands[name]
        return tir_eigen_sum(self.b, depth, lambda k: matrix[base + k] * data[0][column + k], single=rows == 1)

    def _sum(self, gate: int, n: Expr, step: FloatStep) -> Expr:
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

    def _normalized(self, gate: int, step: FloatStep) -> Callable[[Expr], Expr]:
        """Emit the statistics of the whole gate; return a function for its values."""
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

    def _cell(self, n: Expr, step: FloatStep) -> None:
        b, attrs = self.b, self.attrs
        forget = b.let("forget", self.gates[n + (attrs.cell_gate - 1) * self.cells])
        entry = self.gates[n] if attrs.gates == 4 else imm(1.0, "float32") - forget
        place = b.let("place", step.cell + n)
        kept = forget * self.cell[place]
        value = b.let("value", kept + self.gates[n + attrs.cell_gate * self.cells] * entry)
        b.store(self.cell, place, _clipped(value, attrs.cell_clip))

    def _hidden(self, n: Expr, step: FloatStep) -> Expr:
        cell = self._activated(self.cell[step.cell + n])
        return self.gates[n + (self.attrs.gates - 1) * self.cells] * cell

    def _results(self, step: FloatStep) -> None:
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

    def _keep(self, o: Expr, value: Expr, step: FloatStep) -> None:
        value = self.b.let("value", value)
        self.b.store(self.output, step.output + o, value)
        self.b.store(self.out, step.result + o, value)


def _clipped(x: Expr, most: float) -> Expr:
    return _bounded(x, -most, most) if most > 0 else x


def accepts_float(group: Group, _target: Target) -> bool:
    """A single call whose weights are constants."""
    attrs = group.anchor.attrs
    named = zip(attrs.names(), group.anchor.args[3:], strict=True)
    return not group.followers and all(isinstance(a, Constant) for name, a in named if name != "auxiliary")


@register_flat("nn.lstm", name="lstm_float", accepts=accepts_float, constant="weight")
def lower_lstm_float(kernel: FlatKernel) -> Cost:
    return LstmFloatKernel(kernel).lower()


# qnn.lstm with integers only: gates, cells and outputs step by step, with sigmoid and tanh in fixed point.


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
        kernel = flat_kernel(group, name, constant="weight", without=slice(3, 7) if packed else slice(0))
        self.attrs: LstmAttrs = group.anchor.attrs
        self.b, self.ctx = kernel.b, TeContext(kernel.b)
        self.ctx.constants = kernel.constants
        self.data, self.first_output, self.first_cell, *weights = kernel.args
        self.matrices, self.others = ([], weights) if packed else (weights[:4], weights[4:])
        self.out, self.output, self.cell = kernel.outs
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
        states = (self.first_output, self.output), (self.first_cell, self.cell)
        for batch, t in each_step(self.b, self.sizes.outer, self.sizes.steps, *states):
            self.step(self._place(batch, t))
        attrs = FuncAttrs(kernel=self.kind, span=self.span, macs=self.macs())
        return Lowered(self.b.finish(attrs), dict(self.ctx.constants), instructions=self.instructions())

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


def _sizes(group: Group, attrs: LstmAttrs) -> Sizes:
    data, output, cell = (tensor_type(a) for a in group.anchor.args[:3])
    sequence = Sequences(data.shape, time_major=attrs.time_major)
    rows, outer = (sequence.batch, 1) if attrs.time_major else (1, sequence.batch)
    return Sizes(sequence.steps, rows, outer, sequence.depth, cell.shape[1], output.shape[1])


accepts = accepts_weights(slice(3, None))


def lower_lstm(group: Group, _target: Target, name: str) -> Lowered:
    return LstmKernel(group, name).lower()


register_impl(OpImplementation("generic.lstm", "qnn.lstm", accepts, lower_lstm))


# nn.lstm_basic: all gates of a row, then its cells and outputs.  The gates are a result, so no scratch memory is needed.


@register_flat(LSTM_BASIC, accepts=accepts_weights(slice(2, None)), constant="weight")
def lower_lstm_basic(kernel: FlatKernel) -> Cost:
    b, (data, last, weight, bias), (out, cell, gates) = kernel.b, kernel.args, kernel.outs
    (batch, cells), depth, is_float = kernel.shape(1), kernel.shape(0)[1], kernel.args[0].dtype == "float32"
    with b.for_("row", batch) as row:
        column, first = b.let("column", row * depth), b.let("first", row * (4 * cells))
        with b.for_("g", 4 * cells) as g:
            base = b.let("base", g * depth)
            if is_float:
                sums = tir_eigen_sum(b, depth, lambda k: weight[base + k] * data[column + k], single=False)
                b.store(gates, first + g, sums + bias[g])
            else:
                b.store(gates, first + g, _integer_gate(b, kernel.attrs, bias[g], (weight, base), (data, column), depth))
        with b.for_("n", cells) as n:
            values = [gates[first + n + i * cells] for i in range(4)]
            i = b.let("i", row * cells + n)
            value, result = _float_cell(b, values, last[i], n, cells) if is_float else _integer_cell(b, values, last[i])
            b.store(cell, i, value)
            b.store(out, i, result())
    macs = batch * 4 * cells * depth
    return Cost(macs, instructions=5 * macs + 700 * batch * cells)


def _float_cell(b: IRBuilder, gates: Sequence[Expr], last: Expr, n: Expr, cells: int) -> tuple[Expr, Callable[[], Expr]]:
    """Cell n of a row from its gates, and a function for its output."""
    whole, tanh = cells - cells % LANES, MATH["eigen_tanh"]

    def sigmoid(x: Expr) -> Expr:
        """In the reference's vector form, or in its scalar form for the last elements."""
        if whole in (0, cells):
            return b.let("gate", MATH["eigen_logistic" if whole else "eigen_scalar_logistic"](x))
        value = b.local("value", (1,), "float32")
        with b.if_(n < whole):
            b.store(value, 0, MATH["eigen_logistic"](x))
        with b.else_():
            b.store(value, 0, MATH["eigen_scalar_logistic"](x))
        return b.let("gate", value[0])

    entry, forget, opened = (sigmoid(gates[g]) for g in (0, 2, 3))
    cell = b.let("cell", entry * tanh(gates[1]) + forget * last)
    return cell, lambda: opened * tanh(cell)


def _integer_gate(
    b: IRBuilder, attrs: LstmBasicAttrs, bias: Expr, weight: tuple[Buffer, Expr], data: tuple[Buffer, Expr], depth: int
) -> Expr:
    def term(k: Expr) -> Expr:
        x = cast("int32", data[0][data[1] + k]) - DATA_ZP
        return cast("uint32", x * (cast("int32", weight[0][weight[1] + k]) - attrs.weight_zp))

    acc = summed(b, "k", depth, term, name="acc", dtype="uint32", init=cast("uint32", bias))
    total = acc * (1 << attrs.shift) if attrs.shift > 0 else acc
    value = (cast("int64", cast("int32", total)) * attrs.multiplier + (1 << 30)) >> 31
    if attrs.shift < 0:
        value = (value + (1 << (-attrs.shift - 1))) >> -attrs.shift
    return saturated(b.let("gate", cast("int32", value)))


def _integer_cell(b: IRBuilder, gates: Sequence[Expr], last: Expr) -> tuple[Expr, Callable[[], Expr]]:
    """A cell from its gates, and a function for its output."""
    values = [b.let("x", cast("int32", g)) for g in gates]
    entry, forget, opened = (b.let("gate", SIGMOID16(values[g])) for g in (0, 2, 3))
    update = b.let("update", TANH16(values[1], imm(3)))
    share = tir_rounding_divide_by_pot(b, _product(entry, update), 4)
    cell = b.let("cell", saturated(share + _product(forget, cast("int32", last))))

    def output() -> Expr:
        hidden = _product(opened, b.let("tanh", TANH16(saturated(cell * 2), imm(3))))
        return clamp(tir_rounding_divide_by_pot(b, hidden, 8), -128, 127) + DATA_ZP

    return cell, output


def _product(x: Expr, y: Expr) -> Expr:
    """The product of fractions with 15 bits; halves are rounded up."""
    return (x * y + (1 << 14)) >> 15


# nn.rnn step by step, batch entry by batch entry: all units of a step are written to the result, then copied to the state.
#
# No scratch memory, except for the quantised vectors of a step in hybrid layers.


_NAMES = ("data", "output", "auxiliary")
"""Vectors, in the order of their matrices' scales."""


class RnnKernel:
    """The kernel under construction."""

    def __init__(self, kernel: FlatKernel) -> None:
        self.b = kernel.b
        self.attrs: RnnAttrs = kernel.attrs
        self.data, self.first, weight, recurrent, self.bias, *more = kernel.args
        self.matrices = [weight, recurrent, *more[1:]]
        self.auxiliary = more[:1]
        self.out, self.output = kernel.outs
        self.sizes = Sequences(kernel.shape(0), time_major=self.attrs.time_major)
        self.units = self.bias.size
        self.vectors = IntegerVectors(self.b, asymmetric=self.attrs.asymmetric)

    def lower(self) -> Cost:
        b, sizes = self.b, self.sizes
        copied(b, self.first, self.output)
        with b.for_("batch", sizes.batch) as batch, b.for_("pass", self.attrs.passes), b.for_("t", sizes.steps) as t:
            place = place_of(b, sizes, batch, t, backward=self.attrs.backward)
            self._step(place, b.let("state", batch * self.units))
        return Cost(macs=sizes.steps * sizes.batch * sum(m.size for m in self.matrices))

    def _step(self, place: Expr, state: Expr) -> None:
        b, sources = self.b, self._sources(place, state)
        if self.attrs.scales:
            for name, (data, first, depth) in zip(_NAMES, sources, strict=False):
                self.vectors.quantize(name, data, first, depth)
        result = b.let("result", place * self.units)
        order = [0, 2, 1] if self.auxiliary else [0, 1]
        with b.for_("n", self.units) as n:
            value: Expr = self.bias[n]
            for which in order:
                value = b.let("value", self._added(value, which, n, sources[which]))
            b.store(self.out, result + n, self._activated(value))
        with b.for_("n", self.units) as n:
            b.store(self.output, state + n, self.out[result + n])

    def _sources(self, place: Expr, state: Expr) -> list[tuple[Buffer, Expr, int]]:
        """Data, output and auxiliary data of a step: buffer, start and size of each."""
        sources = [(self.data, place * self.sizes.depth, self.sizes.depth), (self.output, state, self.units)]
        for data in self.auxiliary:
            depth = data.size // (self.sizes.steps * self.sizes.batch)
            sources.append((data, place * depth, depth))
        return [(data, self.b.let("first", first), depth) for data, first, depth in sources]

    def _added(self, value: Expr, which: int, n: Expr, source: tuple[Buffer, Expr, int]) -> Expr:
        """value + (row n of a matrix times a vector)."""
        data, first, depth = source
        matrix, row = self.matrices[which], self.b.let("row", n * depth)
        if self.attrs.scales:
            return value + self.vectors.product(_NAMES[which], (matrix, row), depth, scale=self.attrs.scales[which])
        return tir_lane_sum(self.b, depth, lambda k: matrix[row + k] * data[first + k], value)

    def _activated(self, x: Expr) -> Expr:
        activation = self.attrs.activation
        if activation in BOUNDS:
            low, high = BOUNDS[activation]
            bottom = imm(low, "float32")
            x = self.b.let("x", select(x > bottom, x, bottom))
            return x if high is None else select(x < imm(high, "float32"), x, imm(high, "float32"))
        return MATH["eigen_tanh"](x) if activation == "TANH" else x


@register_flat("nn.rnn", accepts=accepts_weights(slice(2, 5), slice(6, None)), constant="weight")
def lower_rnn(kernel: FlatKernel) -> Cost:
    return RnnKernel(kernel).lower()


# nn.svdf_memory filter by filter, four places at a time; or only the newest values, if the state need not be moved.
#
# All filters are contiguous, so the whole state moves by one place: the next filter's oldest value moves to the last place of
# this one, where the newest value then overwrites it.


UNROLL = 4


@register_flat("nn.svdf_memory")
def lower_memory(kernel: FlatKernel) -> Cost | None:
    b, (state, feature), out = kernel.b, kernel.args, kernel.out
    filters, zp = feature.size, kernel.attrs.state_zp
    older = out.size // filters - 1
    with b.for_("f", filters) as f:
        base = b.let("base", f * (older + 1))
        whole = older - older % UNROLL
        if whole:
            with b.for_("m", whole, step=UNROLL) as m:
                _move(b, state, out, base + m, UNROLL)
        _move(b, state, out, base + whole, older - whole)
        b.store(out, base + older, _newest(feature, f, zp))
    if [id(v) for v in kernel.group.params] != [id(a) for a in kernel.anchor.args]:
        return None
    return Cost(shift=Shift(itemsize(out.dtype), feature.nbytes, _store_newest(kernel.group, feature, out, zp)))


def _store_newest(group: Group, feature: Buffer, out: Buffer, zp: int) -> PrimFunc:
    """Store the newest value of each filter at its last place."""
    depth = out.size // feature.size
    b = IRBuilder("svdf_newest")
    data, result = b.input("data", feature.shape, feature.dtype), b.output("out", out.shape, out.dtype)
    with b.for_("f", feature.size) as f:
        b.store(result, f * depth + (depth - 1), _newest(data, f, zp))
    return b.finish(FuncAttrs("generic.svdf_newest", group.anchor.span))


def _newest(feature: Buffer, f: Expr, zp: int) -> Expr:
    return cast(feature.dtype, cast("int32", feature[f]) + zp) if zp else feature[f]


def _move(b: IRBuilder, state: Buffer, out: Buffer, first: Expr, count: int) -> None:
    """Move `count` places from `first` + 1 to `first`; all are read before any is written."""
    values = [b.let("value", state[first + (i + 1)]) for i in range(count)]
    for i, value in enumerate(values):
        b.store(out, first + imm(i), value)
