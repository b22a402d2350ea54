"""Recurrent layers, float32 and hybrid (float32 data, integer weights), nn.lstm_basic of either type, and SVDF's memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from aot.ir.type import TensorType
from aot.numerics.elementary import MATH
from aot.numerics.fixed_point import SIGMOID16, TANH16, tir_rounding_divide_by_pot
from aot.op.common.float_layer import LANES, tir_eigen_sum, tir_lane_sum
from aot.op.qnn.hybrid import DynamicParamsAttrs, DynamicQuantizeAttrs, DynamicRange, integer_type
from aot.op.recurrent.lstm import DATA_ZP, LSTM_BASIC, LstmBasicAttrs, LstmFloatAttrs
from aot.op.recurrent.rnn import BOUNDS, RnnAttrs, Sequences
from aot.relay.expr import Constant, tensor_type
from aot.support.dataclass import dataclass
from aot.support.dtype import itemsize
from aot.target.target import Target
from aot.te.tensor import TensorFn
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, Imm, cast, clamp, imm, logical_and, minimum, select
from aot.tir.function import FuncAttrs, PrimFunc, Shift
from aot.topi.generic.flat import accepts_alone, flat_kernel
from aot.topi.layer.planes import counted
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl


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
        params = TensorFn((1, 3), "float32", lambda _b, i: values[_constant(i[1])])
        integers, type_ = DynamicQuantizeAttrs(self._asymmetric), TensorType((1, depth), self._dtype)
        if name not in self._buffers:
            self._buffers[name] = b.scratch("integers", (depth,), self._dtype)
        with b.for_("k", depth) as k:
            b.store(self._buffers[name], k, integers.element(b, (imm(0), k), vector, params, out_type=type_))
        self._scales[name] = values[0]

    def product(self, name: str, row: tuple[Buffer, Expr], depth: int, *, scale: float) -> Expr:
        """The product of a matrix row (buffer, first element), with the given scale, and the vector."""
        b = self._b
        acc = b.local("acc", (1,), "int32", init=0)
        with b.for_("k", depth) as k:
            b.store(acc, 0, acc[0] + cast("int32", row[0][row[1] + k]) * cast("int32", self._buffers[name][k]))
        return cast("float32", acc[0]) * (self._scales[name] * imm(scale, "float32"))


def _constant(index: Expr) -> int:
    assert isinstance(index, Imm)
    return int(index.value)


# nn.lstm step by step, batch by batch: all gates of a step, then the cells, then the outputs.
#
# Scratch memory: the gates of one step, and the hidden values if there is a projection.  States are kept in their result buffers.


@dataclass(frozen=True, slots=True)
class Step:
    """The batch entry, and where its data, auxiliary data, results and states begin."""

    batch: Expr
    data: Expr
    auxiliary: Expr
    result: Expr
    output: Expr
    cell: Expr


class LstmFloatKernel:
    """The kernel under construction."""

    def __init__(self, group: Group, name: str) -> None:
        self.kernel = kernel = flat_kernel(group, name, constant="weight")
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

    def lower(self) -> Lowered:
        b, sizes = self.b, self.sizes
        for source, target in ((self.first_output, self.output), (self.first_cell, self.cell)):
            with b.for_("i", target.size) as i:
                b.store(target, i, source[i])
        for batch in counted(b, sizes.batch, "batch"):
            for t in counted(b, sizes.steps, "t"):
                self._step(batch, t)
        return self.kernel.finish("lstm_float", macs=self.macs())

    def macs(self) -> int:
        step = self.attrs.gates * self.cells * (self.sizes.depth + self.outputs + self.extra)
        step += self.outputs * self.cells * self.attrs.projection
        return self.sizes.steps * self.sizes.batch * step

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

    def _prepare(self, step: Step) -> None:
        """Quantise the vectors of a step (hybrid layers only)."""
        if self.attrs.scales:
            self.vectors.quantize("input", self.data, step.data, self.sizes.depth)
            self.vectors.quantize("recurrent", self.output, step.output, self.outputs)
            if self.attrs.auxiliary:
                self.vectors.quantize("auxiliary_weight", self.operands["auxiliary"], step.auxiliary, self.extra)

    def _product(self, name: str, row: Expr, data: tuple[Buffer, Expr], depth: int, *, rows: int, gate: int = 0) -> Expr:
        """A matrix row times a vector."""
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


def lower_lstm_float(group: Group, _target: Target, name: str) -> Lowered:
    return LstmFloatKernel(group, name).lower()


def accepts_float(group: Group, _target: Target) -> bool:
    """A single call whose weights are constants."""
    attrs = group.anchor.attrs
    named = zip(attrs.names(), group.anchor.args[3:], strict=True)
    return not group.followers and all(isinstance(a, Constant) for name, a in named if name != "auxiliary")


register_impl(OpImplementation("generic.lstm_float", "nn.lstm", accepts_float, lower_lstm_float))


# nn.lstm_basic: all gates of a row, then its cells and outputs.  The gates are a result, so no scratch memory is needed.


class _Kernel:
    """The common part of both types: rows, gates, cells."""

    def __init__(self, group: Group, name: str) -> None:
        self.kernel = kernel = flat_kernel(group, name, constant="weight")
        self.b = kernel.b
        self.attrs: LstmBasicAttrs = kernel.attrs
        self.batch, self.cells = kernel.shape(1)
        self.depth = kernel.shape(0)[1]
        self.data, self.last, self.weight, self.bias = kernel.args
        self.out, self.cell, self.gates = kernel.outs

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
        return replace(self.kernel.finish("lstm_basic", macs=macs), instructions=5 * macs + 700 * self.batch * self.cells)

    def sum(self, gate: Expr, base: Expr, column: Expr) -> Expr:
        """Value `gate` of a row; its weights begin at `base`, its data at `column`."""
        raise NotImplementedError

    def step(self, i: Expr, n: Expr, gates: tuple[Expr, Expr, Expr, Expr]) -> None:
        """Compute cell i, the n-th of its row, and its output."""
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
        """Sigmoid in the reference's vector form, or in its scalar form for the last elements."""
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
    """The product of fractions with 15 bits; halves are rounded up."""
    return (x * y + (1 << 14)) >> 15


def _saturated(x: Expr) -> Expr:
    """x, clamped to int16."""
    return clamp(x, -32768, 32767)


def accepts_basic(group: Group, _target: Target) -> bool:
    """A single call whose weights are constants."""
    return not group.followers and all(isinstance(a, Constant) for a in group.anchor.args[2:])


def lower_lstm_basic(group: Group, _target: Target, name: str) -> Lowered:
    kernel = _Floats if tensor_type(group.anchor.args[0]).dtype == "float32" else _Integers
    return kernel(group, name).lower()


register_impl(OpImplementation("generic.lstm_basic", LSTM_BASIC, accepts_basic, lower_lstm_basic))


# nn.rnn step by step, batch entry by batch entry: all units of a step are written to the result, then copied to the state.
#
# No scratch memory, except for the quantised vectors of a step in hybrid layers.


_NAMES = ("data", "output", "auxiliary")
"""Vectors, in the order of their matrices' scales."""


class RnnKernel:
    """The kernel under construction."""

    def __init__(self, group: Group, name: str) -> None:
        self.kernel = kernel = flat_kernel(group, name, constant="weight")
        self.b = kernel.b
        self.attrs: RnnAttrs = kernel.attrs
        self.data, self.first, weight, recurrent, self.bias, *more = kernel.args
        self.matrices = [weight, recurrent, *more[1:]]
        self.auxiliary = more[:1]
        self.out, self.output = kernel.outs
        self.sizes = Sequences(kernel.shape(0), time_major=self.attrs.time_major)
        self.units = self.bias.size
        self.vectors = IntegerVectors(self.b, asymmetric=self.attrs.asymmetric)

    def lower(self) -> Lowered:
        b, sizes = self.b, self.sizes
        with b.for_("i", self.output.size) as i:
            b.store(self.output, i, self.first[i])
        with b.for_("batch", sizes.batch) as batch, b.for_("pass", self.attrs.passes), b.for_("t", sizes.steps) as t:
            at = imm(sizes.steps - 1) - t if self.attrs.backward else t
            place = b.let("place", at * sizes.batch + batch if self.attrs.time_major else batch * sizes.steps + at)
            self._step(place, b.let("state", batch * self.units))
        macs = sizes.steps * sizes.batch * sum(m.size for m in self.matrices)
        return self.kernel.finish("rnn", macs=macs)

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


def accepts_rnn(group: Group, _target: Target) -> bool:
    """A single call whose weights are constants."""
    args = group.anchor.args
    return not group.followers and all(isinstance(a, Constant) for a in (*args[2:5], *args[6:]))


def lower_rnn(group: Group, _target: Target, name: str) -> Lowered:
    return RnnKernel(group, name).lower()


register_impl(OpImplementation("generic.rnn", "nn.rnn", accepts_rnn, lower_rnn))


# nn.svdf_memory filter by filter, four places at a time; or only the newest values, if the state need not be moved.
#
# All filters are contiguous, so the whole state moves by one place: the next filter's oldest value moves to the last place of
# this one, where the newest value then overwrites it.


UNROLL = 4


def lower_memory(group: Group, _target: Target, name: str) -> Lowered:
    kernel = flat_kernel(group, name)
    b, (state, feature), out = kernel.b, kernel.args, kernel.out
    filters, zp = tensor_type(group.anchor.args[1]).size, group.anchor.attrs.state_zp
    older = out.size // filters - 1
    with b.for_("f", filters) as f:
        base = b.let("base", f * (older + 1))
        whole = older - older % UNROLL
        if whole:
            with b.for_("m", whole, step=UNROLL) as m:
                _move(b, state, out, base + m, UNROLL)
        _move(b, state, out, base + whole, older - whole)
        b.store(out, base + older, _newest(feature, f, zp))
    lowered = kernel.finish("svdf_memory")
    if lowered.func.inputs != (state, feature):
        return lowered
    shift = Shift(itemsize(out.dtype), feature.nbytes, _store_newest(group, feature, out, zp))
    return replace(lowered, func=replace(lowered.func, attrs=replace(lowered.func.attrs, shift=shift)))


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


register_impl(OpImplementation("generic.svdf_memory", "nn.svdf_memory", accepts_alone, lower_memory))
