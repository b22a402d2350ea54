"""Fully connected hybrid layers: float32 data quantised to bytes at run time, sums that become float32; see w8/intrin.py.

Scratch: two bytes an input of one row.  Weights take one byte each in flash.
"""

from __future__ import annotations

from math import prod

import numpy as np

from aot.ir.op import Array, Op
from aot.ir.type import TensorType
from aot.op.qnn.hybrid import NAME as HYBRID_OUTPUT
from aot.op.te_rule import F_TE, TeContext
from aot.relay.expr import Call, Constant, Var, is_call, tensor_type
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.te.tensor import TensorFn
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, imm
from aot.tir.function import FuncAttrs
from aot.tir.stmt import Region
from aot.topi.arm_dsp.w8.intrin import PRESCALE, TAPS, bias_words, dot_w8, weight_words
from aot.topi.arm_dsp.w8.stream import MAX_WEIGHT, QuadPlan, arrange, plan_quads, run_taps
from aot.topi.arm_dsp.w8.window import pack_run, run_instructions
from aot.topi.layer.fused import describe
from aot.topi.strategy import Group, Lowered, register_planned

CHANNELS = 4
SUM_LIMIT = 1 << (31 - PRESCALE)
"""Sums come times 256."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """`weight` int [O, K]; `scales` float32 [1] or [O]; `bias` float32 [O] or None; `parameters`: scale, factor, zero point."""

    anchor: Call
    output: Call
    data: Var
    parameters: Var
    weight: Array
    scales: Array
    bias: Array | None

    @property
    def rows(self) -> int:
        return prod(self.data.type.shape[:-1])

    @property
    def channels(self) -> int:
        return len(self.weight)


def _plan(group: Group, target: Target) -> _Plan | None:
    """Data of bytes (a symmetric quantisation), sums below 2^23, nothing after the layer's own output."""
    anchor, (output, *rest) = group.anchor, (group.followers or (None,))
    if output is None or rest or not is_call(output, HYBRID_OUTPUT) or not isinstance(anchor.op, Op) or not target.has("dsp"):
        return None
    data, weight = anchor.args
    _, parameters, scales, *bias = output.args
    constants = [c for c in (weight, scales, *bias) if isinstance(c, Constant)]
    if len(constants) < 2 + len(bias) or not isinstance(data, Var) or not isinstance(parameters, Var):
        return None
    if data.type.dtype != "int8" or anchor.attrs.input_zp or anchor.attrs.weight_zp or tensor_type(anchor).dtype != "int32":
        return None
    matrix = constants[0].data.astype(np.int64)
    if int(np.abs(matrix).max()) > MAX_WEIGHT or int(np.abs(matrix).sum(axis=1).max()) * 128 >= SUM_LIMIT:
        return None
    return _Plan(
        anchor, output, data, parameters, matrix, constants[1].data.reshape(-1), constants[2].data.reshape(-1) if bias else None
    )


def _lower(group: Group, _target: Target, name: str, plan: _Plan) -> Lowered:
    kernel = _Kernel(IRBuilder(name), group, plan)
    kernel.emit()
    attrs = FuncAttrs(
        kernel=describe("arm_dsp.dense_hybrid", channels=CHANNELS, unroll=kernel.quads.unroll),
        span=plan.anchor.span,
        macs=plan.rows * plan.weight.size,
    )
    return Lowered(kernel.b.finish(attrs), {"params": kernel.stream()}, kernel.instructions(), kernel.code())


class _Kernel:
    """Emits the loops: rows, packing, blocks of channels."""

    def __init__(self, b: IRBuilder, group: Group, plan: _Plan) -> None:
        self.b, self.plan, depth = b, plan, plan.weight.shape[1]
        self.quads: QuadPlan = plan_quads(len(run_taps(depth)) // TAPS, cost=14, common=False)
        self._weights = arrange(plan.weight, 1, self.quads)
        start = bias_words(np.zeros(plan.channels, np.int64), self._weights)
        floats = [a for a in (plan.scales if plan.scales.size > 1 else None, plan.bias) if a is not None]
        self._numbers = [start.astype(np.int32), *(a.astype(np.float32).view(np.int32) for a in floats)]
        buffers = {
            id(var): b.input("data" if var is plan.data else "parameters", (prod(var.type.shape),), var.type.dtype)
            for var in group.params
        }
        self._data, self._parameters = buffers[id(plan.data)], buffers[id(plan.parameters)]
        self._out = b.output("out", (plan.rows * plan.channels,), "float32")
        self._params = b.const("params", (self.stream().size,), "int32", align=4)
        self._words = b.scratch("words", (TAPS * self.quads.quads,), "int16", align=4)

    def stream(self) -> Array:
        """Of each block of n channels: start values, scales if they vary, biases if there are any, weights [quads][n]."""
        words = weight_words(self._weights).reshape(self.plan.channels, -1, 2)
        parts: list[Array] = []
        for first in range(0, self.plan.channels, CHANNELS):
            block = slice(first, first + CHANNELS)
            parts += [a[block] for a in self._numbers]
            parts.append(np.ascontiguousarray(words[block].transpose(1, 0, 2)).reshape(-1).view(np.int32))
        return np.concatenate(parts)

    def emit(self) -> None:
        b, depth = self.b, self.plan.weight.shape[1]
        whole, rest = divmod(self.plan.channels, CHANNELS)
        with b.for_("m", self.plan.rows) as m:
            pack_run(b, self._words, (self._data, m * depth), depth, total=self.quads.quads, unroll=1 if self.quads.rest else 4)
            scale = b.let("scale", self._parameters[m * 3])
            if whole:
                with b.for_("n", whole) as n:
                    self._block(m, n, CHANNELS, scale)
            if rest:
                self._block(m, imm(whole), rest, scale)

    def _block(self, m: Expr, n: Expr, count: int, scale: Expr) -> None:
        b, numbers = self.b, len(self._numbers)
        start = b.let("start", n * (CHANNELS * (numbers + self.quads.quads)))
        acc = b.local("acc", (count,), "int32")
        for j in range(count):
            b.store(acc, j, self._params[start + j])
        weights = Region(self._params, (start + count * numbers) * 2, "int16")
        b.block(dot_w8(count, self.quads.unroll, self.quads.rest), weights, self._words, acc, imm(self.quads.quads))
        for j in range(count):
            b.store(self._out, m * self.plan.channels + n * CHANNELS + j, self._value(start, acc, j=j, count=count, scale=scale))

    def _value(self, start: Expr, acc: Buffer, *, j: int, count: int, scale: Expr) -> Expr:
        """The output's own meaning, of numbers from the stream."""
        floats = iter(range(1, len(self._numbers)))

        def number() -> TensorFn:
            at = start + (next(floats) * count + j)
            return TensorFn((2,), "float32", lambda _b, _i: self._params.load("float32", at))

        shape, scales = (self.plan.rows, self.plan.channels), self.plan.scales
        weight_scale = (
            TensorFn((1,), "float32", lambda _b, _i: imm(float(scales[0]), "float32")) if scales.size == 1 else number()
        )
        args = [
            TensorFn(shape, "int32", lambda _b, _i: acc[j] >> PRESCALE),
            TensorFn((self.plan.rows, 3), "float32", lambda _b, _i: scale),
            weight_scale,
            *([number()] if self.plan.bias is not None else []),
        ]
        output = self.plan.output
        value = F_TE.get(HYBRID_OUTPUT)(TeContext(self.b), args, output.attrs, TensorType(shape, "float32"))
        return value.at(self.b, (imm(0), imm(j)))

    def instructions(self) -> int:
        plan = self.plan
        each = 10 + len(self._numbers) + 4 * sum(v is not None for v in (plan.output.attrs.lo, plan.output.attrs.hi))
        blocks = [CHANNELS] * (plan.channels // CHANNELS) + [plan.channels % CHANNELS] * (plan.channels % CHANNELS > 0)
        total = sum(self.quads.instructions(2 + 3 * n) + n * each + 12 for n in blocks)
        return plan.rows * (total + run_instructions(plan.weight.shape[1]) + 10) + 12

    def code(self) -> int:
        """Bytes."""
        kinds = {CHANNELS} if self.plan.channels >= CHANNELS else set()
        kinds |= {self.plan.channels % CHANNELS} - {0}
        return 140 + sum(self.quads.code(8 + 12 * n) + 60 + 56 * n for n in kinds)


# float32 results of four bytes each would lie between this layer and its followers
register_planned("arm_dsp.dense_hybrid", "nn.dense", _plan, _lower, plevel=30, cuts=False)
