"""qnn.lstm with both products of matrices by SMLAD, the gates of one cell at a time; see w8/intrin.py.

Each cell has its words of constants in one stream: for the data and then for the last output a bias for each gate and the
weights in quads, a quad of each gate in turn.  The rest of a step is that of the generic kernel.
Scratch: beyond its own two bytes a value of the data and of the output, rounded up to four values.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from aot.ir.op import Array
from aot.op.qnn.requantize import RequantizeAttrs
from aot.op.recurrent.lstm_integer import Scale
from aot.relay.expr import Constant, tensor_type
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import region
from aot.tir.expr import Expr, imm
from aot.topi.arm_dsp.recurrent.functions import Computed, Tabulated, tables
from aot.topi.arm_dsp.w8.intrin import PRESCALE, TAPS, bias_words, dot_w8, weight_words
from aot.topi.arm_dsp.w8.stream import MAX_WEIGHT, QuadPlan, arrange, plan_quads, run_taps
from aot.topi.arm_dsp.w8.window import pack_run, run_instructions
from aot.topi.generic.lstm_integer import Functions, LstmKernel, Step, accepts
from aot.topi.intrin.scalar import saturate
from aot.topi.layer.requant import HighMultiply, plan_high_multiply
from aot.topi.layer.threshold import plan_uniform
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl

_LARGEST = 1 << 23
_LARGEST_PRODUCT = 1 << 30
_WIDE = 1 << 16
"""Beyond this, and a sum with any int16 number is beyond int16 too."""

_DOT, _GATE, _CELL, _KEPT = 14, 10, 28, 60
"""Instructions (from counts under QEMU): a quad of all gates, a gate's two rescalings, a cell's products, and where gates wait in
memory.
"""


@dataclass(frozen=True, slots=True)
class _Matrix:
    """Weights [G, N, K] and biases [G, N] of one operand, its quads, and where the operand is packed."""

    weights: Array
    biases: Array
    plan: QuadPlan
    words: Buffer
    depth: int

    def stream(self, cell: int) -> list[Array]:
        """The words of one cell: biases, then quads of all gates."""
        weights = arrange(self.weights[:, cell], 1, self.plan)
        quads = weight_words(weights).reshape(len(weights), self.plan.quads, 2)
        start = bias_words(self.biases[:, cell], weights)
        return [start, np.ascontiguousarray(quads.transpose(1, 0, 2)).reshape(-1).view(np.int32)]

    def largest(self, gate: int) -> int:
        """A bound of the gate's sums."""
        return int(_sums(self.weights[gate], self.biases[gate]).max())

    def size(self) -> int:
        """Words of one cell."""
        return len(self.weights) * (1 + self.plan.quads)


class LstmW8Kernel(LstmKernel):
    """The generic kernel with other sums, and where it can be with each cell whole in registers."""

    def __init__(self, group: Group, target: Target, name: str, *, tabulated: bool) -> None:
        self.target, self.tabulated = target, tabulated
        self.kind = "arm_dsp.lstm_w8" + "_tables" * tabulated
        super().__init__(group, name, packed=True)
        constants = [a.data for a in group.anchor.args[3:7] if isinstance(a, Constant)]
        self.operands = [self._matrix(constants[i], constants[i + 2]) for i in range(2)]
        words = np.concatenate([w for cell in range(self.sizes.cells) for m in self.operands for w in m.stream(cell)])
        self.params = self.b.const("params", (words.size,), "int32")
        self.ctx.constants[self.params.name] = words.astype(np.int32)

    @property
    def keeps_gates(self) -> bool:
        attrs = self.attrs
        return bool(attrs.peephole_scales or attrs.norm or attrs.projection_scale)

    def make_functions(self) -> Functions:
        self.by_block = (Tabulated if self.tabulated else Computed)(self.b, self.ctx, self.attrs)
        return self.by_block

    def _matrix(self, weights: Array, biases: Array) -> _Matrix:
        gates, depth = self.attrs.gates, weights.shape[1]
        plan = plan_quads(len(run_taps(depth)) // TAPS, cost=_DOT, common=False)
        words = self.b.scratch("words", (TAPS * plan.quads,), "int16", align=4)
        shape = (gates, self.sizes.cells)
        return _Matrix(weights.reshape(*shape, depth), biases.reshape(shape), plan, words, depth)

    # ---- sums

    def step(self, step: Step) -> None:
        if self.keeps_gates:
            super().step(step)
        else:
            self.loop("row", self.sizes.rows, lambda row: self.sums(row, step))

    def sums(self, row: Expr, step: Step) -> None:
        s = self.sizes
        sources = ((self.data, step.data + row * s.depth), (self.output, step.output + row * s.outputs))
        for matrix, source in zip(self.operands, sources, strict=True):
            pack_run(self.b, matrix.words, source, matrix.depth, total=matrix.plan.quads)
        with self.b.for_("n", s.cells) as n:
            gates = self._gate_sums(n)
            i = row * s.cells + n
            if self.keeps_gates:
                for gate, value in enumerate(gates):
                    self.b.store(self.gates, self.gate(gate, i), value)
            else:
                self._whole_cell(gates, i, step)

    def _gate_sums(self, n: Expr) -> list[Expr]:
        """All gates of one cell before their functions."""
        b, attrs, (data, output) = self.b, self.attrs, self.operands
        start = b.let("start", n * (data.size() + output.size()))
        first = self._shares(data, start, attrs.input_scales, saturates=True)
        shares = self._shares(output, start + data.size(), attrs.recurrent_scales, saturates=attrs.is_tflm)
        return [b.let("gate", self.saturated(x + y)) for x, y in zip(first, shares, strict=True)]

    def _shares(self, matrix: _Matrix, start: Expr, scales: tuple[Scale, ...], *, saturates: bool) -> list[Expr]:
        """The operand's share in each gate of the cell whose words begin at `start`; see `_rescaled`."""
        b, gates = self.b, self.attrs.gates
        acc = b.local("acc", (gates,), "int32")
        for gate in range(gates):
            b.store(acc, gate, self.params[start + gate])
        weights = region(self.params, (start + gates) * 2, dtype="int16")
        b.block(dot_w8(gates, matrix.plan.unroll, matrix.plan.rest), weights, matrix.words, acc, imm(matrix.plan.quads))
        found = [self._rescaled(acc[g], scales[g], matrix.largest(g), saturates=saturates) for g in range(gates)]
        return [b.let("share", value) for value in found]

    def _rescaled(self, acc: Expr, scale: Scale, largest: int, *, saturates: bool) -> Expr:
        """A sum of at most `largest`, which comes times 2^PRESCALE, in the gate's scale.

        Saturated to int16, or far enough beyond for its sum with an int16 number to saturate.
        """
        limits = int_range("int16") if saturates else (-_WIDE, _WIDE)
        short = _short_form(scale, largest, limits, target=self.target, prescale=PRESCALE)
        if short is None:
            value = self.scaled(acc >> PRESCALE, scale)
            return self.saturated(value) if saturates else value
        fields = tuple(imm(int(f.values[0])) for f in short.fields)
        return (short.emit_scaled if saturates else short.emit_wide)(self.b, acc, fields)

    # ---- cells

    def _whole_cell(self, gates: list[Expr], i: Expr, step: Step) -> None:
        """A cell and its output by the sums of its gates."""
        b, attrs = self.b, self.attrs
        opened = [x for g, x in enumerate(gates) if g != attrs.cell_gate]
        *entry, forget, out = self.functions.sigmoid(opened)
        update = self.functions.tanh(gates[attrs.cell_gate])
        first = entry[0] if entry else b.let("entry", imm(32767) - forget)
        place = b.let("place", step.cell + i)
        cell = b.let("cell", self.new_cell(place, first, forget, update))
        b.store(self.cell, place, cell)
        made = self.functions.tanh(cell, attrs.cell_bits) if attrs.has_cell_tanh else first
        value = b.let("value", self.hidden(out, made, self.out.dtype))
        b.store(self.output, step.output + i, value)
        b.store(self.out, step.result + i, value)

    def hidden(self, opened: Expr, cell: Expr, dtype: str) -> Expr:
        scale, zp = self.attrs.hidden_scale, self.attrs.hidden_zp
        for prescale in (1, 0):
            short = _short_form(scale, _LARGEST_PRODUCT, int_range(dtype), target=self.target, prescale=prescale, zp=zp)
            if short is not None:
                fields = tuple(imm(int(f.values[0])) for f in short.fields)
                return short.emit(self.b, self.b.let("product", opened * cell), fields)
        return super().hidden(opened, cell, dtype)

    def saturated(self, x: Expr) -> Expr:
        return saturate("ssat", 16)(x)

    def instructions(self) -> int:
        """Of one call, without normalisation and projection, which are as in the generic kernel."""
        s, gates = self.sizes, self.attrs.gates
        dots = sum(m.plan.instructions(_DOT * gates // 4) + 20 for m in self.operands)
        cell = self.by_block.instructions() + _CELL + (0 if not self.keeps_gates else _KEPT)
        row = s.cells * (dots + gates * _GATE + cell) + sum(run_instructions(m.depth) for m in self.operands)
        return s.steps * s.rows * s.outer * row


def _short_form(
    scale: Scale, largest: int, limits: tuple[int, int], *, target: Target, prescale: int, zp: int = 0
) -> HighMultiply | None:
    """Of numbers up to `largest` that come times 2^prescale; without a shift to the right there is no second rounding."""
    multiplier, shift = scale
    dtype = "int8" if limits == int_range("int8") else "int16"
    attrs = RequantizeAttrs((multiplier,), (shift,), zp, *limits, "double" if shift < 0 else "single", dtype)
    low, high = np.array([-largest]), np.array([largest])
    uniform = plan_uniform(attrs, low, high, target=target, prescale=prescale)
    return uniform or plan_high_multiply(attrs, low, high, target=target, prescale=prescale)


def accepts_w8(group: Group, target: Target) -> bool:
    """Bytes, weights without -128, and sums below 2^23, the zero points being in the biases."""
    if not target.has("dsp") or not accepts(group, target) or tensor_type(group.anchor.args[0]).dtype != "int8":
        return False
    weight, recurrent, bias, recurrent_bias = (a.data.astype(np.int64) for a in group.anchor.args[3:7] if isinstance(a, Constant))
    return all(_fits(w, b) for w, b in ((weight, bias), (recurrent, recurrent_bias)))


def _fits(weights: Array, biases: Array) -> bool:
    return int(np.abs(weights.astype(np.int64)).max()) <= MAX_WEIGHT and int(_sums(weights, biases).max()) < _LARGEST


def _sums(weights: Array, biases: Array) -> Array:
    """Bounds of the sums of each row."""
    bounds: Array = np.abs(weights.astype(np.int64)).sum(axis=1) * 128 + np.abs(biases.astype(np.int64))
    return bounds


def accepts_tables(group: Group, target: Target) -> bool:
    """The same, with functions that have tables."""
    return accepts_w8(group, target) and tables(group.anchor.attrs) is not None


def lower(group: Group, target: Target, name: str, *, tabulated: bool) -> Lowered:
    return LstmW8Kernel(group, target, name, tabulated=tabulated).lower()


for _tabulated in (False, True):
    _name, _accepts = ("arm_dsp.lstm_w8_tables", accepts_tables) if _tabulated else ("arm_dsp.lstm_w8", accepts_w8)
    register_impl(OpImplementation(_name, "qnn.lstm", _accepts, partial(lower, tabulated=_tabulated), plevel=15 - _tabulated))
