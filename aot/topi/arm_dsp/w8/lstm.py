"""qnn.lstm with both products of matrices by SMLAD, the gates of one cell at a time; see w8/intrin.py.

Each cell has its words of constants in one stream: for the data and then for the last output a bias for each gate and the
weights in quads, a quad of each gate in turn.  The rest of a step is that of the generic kernel.
Scratch: beyond its own two bytes a value of the data and of the output, rounded up to four values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aot.ir.op import Array
from aot.op.recurrent.lstm_integer import Scale
from aot.relay.expr import Constant, tensor_type
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import region
from aot.tir.expr import Expr, imm
from aot.topi.arm_dsp.w8.intrin import PRESCALE, TAPS, bias_words, dot_w8, weight_words
from aot.topi.arm_dsp.w8.stream import MAX_WEIGHT, QuadPlan, arrange, plan_quads, run_taps
from aot.topi.arm_dsp.w8.window import pack_run, run_instructions
from aot.topi.generic.recurrent.lstm_integer import LstmKernel, Step, accepts, saturated
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl

_LARGEST = 1 << 23
_DOT, _GATE, _CELL = 14, 26, 620
"""Instructions (from counts under QEMU): a quad of all gates, a gate's two rescalings, a cell's functions and products."""


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

    def size(self) -> int:
        """Words of one cell."""
        return len(self.weights) * (1 + self.plan.quads)


class LstmW8Kernel(LstmKernel):
    """The generic kernel with other sums."""

    kind = "arm_dsp.lstm_w8"

    def __init__(self, group: Group, name: str) -> None:
        super().__init__(group, name, packed=True)
        constants = [a.data for a in group.anchor.args[3:7] if isinstance(a, Constant)]
        self.operands = [self._matrix(constants[i], constants[i + 2]) for i in range(2)]
        words = np.concatenate([w for cell in range(self.sizes.cells) for m in self.operands for w in m.stream(cell)])
        self.params = self.b.const("params", (words.size,), "int32")
        self.ctx.constants[self.params.name] = words.astype(np.int32)

    def _matrix(self, weights: Array, biases: Array) -> _Matrix:
        gates, depth = self.attrs.gates, weights.shape[1]
        plan = plan_quads(len(run_taps(depth)) // TAPS, cost=_DOT, common=False)
        words = self.b.scratch("words", (TAPS * plan.quads,), "int16", align=4)
        shape = (gates, self.sizes.cells)
        return _Matrix(weights.reshape(*shape, depth), biases.reshape(shape), plan, words, depth)

    def sums(self, row: Expr, step: Step) -> None:
        s = self.sizes
        sources = ((self.data, step.data + row * s.depth), (self.output, step.output + row * s.outputs))
        for matrix, source in zip(self.operands, sources, strict=True):
            pack_run(self.b, matrix.words, source, matrix.depth, total=matrix.plan.quads)
        with self.b.for_("n", s.cells) as n:
            self._cell_sums(n, row * s.cells + n)

    def _cell_sums(self, n: Expr, i: Expr) -> None:
        """All gates of one cell."""
        b, attrs, (data, output) = self.b, self.attrs, self.operands
        start = b.let("start", n * (data.size() + output.size()))
        first = [b.let("first", saturated(v)) for v in self._products(data, start, attrs.input_scales)]
        shares = self._products(output, start + data.size(), attrs.recurrent_scales)
        for gate, share in enumerate(shares):
            self.add(gate, i, first[gate], share)

    def _products(self, matrix: _Matrix, start: Expr, scales: tuple[Scale, ...]) -> list[Expr]:
        """The shares of one operand in the gates of the cell whose words begin at `start`."""
        b, gates = self.b, self.attrs.gates
        acc = b.local("acc", (gates,), "int32")
        for gate in range(gates):
            b.store(acc, gate, self.params[start + gate])
        weights = region(self.params, (start + gates) * 2, dtype="int16")
        b.block(dot_w8(gates, matrix.plan.unroll, matrix.plan.rest), weights, matrix.words, acc, imm(matrix.plan.quads))
        return [b.let("share", self.scaled(acc[gate] >> PRESCALE, scales[gate])) for gate in range(gates)]

    def instructions(self) -> int:
        """Of one call, without normalisation and projection, which are as in the generic kernel."""
        s, gates = self.sizes, self.attrs.gates
        dots = sum(m.plan.instructions(_DOT * gates // 4) + 20 for m in self.operands)
        row = s.cells * (dots + gates * _GATE + _CELL) + sum(run_instructions(m.depth) for m in self.operands)
        return s.steps * s.rows * s.outer * row


def accepts_w8(group: Group, target: Target) -> bool:
    """Bytes, weights without -128, and sums below 2^23, the zero points being in the biases."""
    if not target.has("dsp") or not accepts(group, target) or tensor_type(group.anchor.args[0]).dtype != "int8":
        return False
    weight, recurrent, bias, recurrent_bias = (a.data.astype(np.int64) for a in group.anchor.args[3:7] if isinstance(a, Constant))
    return all(_fits(w, b) for w, b in ((weight, bias), (recurrent, recurrent_bias)))


def _fits(weights: Array, biases: Array) -> bool:
    sums = np.abs(weights).sum(axis=1) * 128 + np.abs(biases)
    return int(np.abs(weights).max()) <= MAX_WEIGHT and int(sums.max()) < _LARGEST


def lower(group: Group, _target: Target, name: str) -> Lowered:
    return LstmW8Kernel(group, name).lower()


register_impl(OpImplementation("arm_dsp.lstm_w8", "qnn.lstm", accepts_w8, lower, plevel=15))
