"""nn.rnn step by step, batch by batch: all units of a step into the result, from where they become the state.

Scratch: none; hybrid, the vectors of a step as integers.
"""

from __future__ import annotations

from aot.ir.type import TupleType
from aot.numerics.elementary import MATH
from aot.op.common.lanes import tir_lane_sum
from aot.op.common.sequence import Sequences
from aot.op.recurrent.rnn import BOUNDS, RnnAttrs
from aot.relay.expr import Constant, tensor_type
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, imm, select
from aot.tir.function import FuncAttrs
from aot.topi.generic.integer_vector import IntegerVectors
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl

_NAMES = ("data", "output", "auxiliary")
"""Vectors, in the order of their matrices' scales."""


class RnnKernel:
    """The kernel under construction."""

    def __init__(self, group: Group, name: str) -> None:
        self.b = IRBuilder(name)
        self.attrs: RnnAttrs = group.anchor.attrs
        args = group.anchor.args
        buffers = {id(v): self.b.input("data", (v.type.size,), "float32") for v in group.params}
        self.constants = {}
        for arg in args:
            if isinstance(arg, Constant) and id(arg) not in buffers:
                buffers[id(arg)] = self.b.const("weight", (arg.type.size,), arg.type.dtype)
                self.constants[buffers[id(arg)].name] = arg.data.reshape(-1)
        found = [buffers[id(a)] for a in args]
        self.data, self.first, weight, recurrent, self.bias, *more = found
        self.matrices = [weight, recurrent, *more[1:]]
        self.auxiliary = more[:1]
        assert isinstance(group.anchor.type, TupleType)
        self.out, self.output = (self.b.output("out", (t.size,), "float32") for t in group.anchor.type.fields)
        self.sizes = Sequences(tensor_type(args[0]).shape, time_major=self.attrs.time_major)
        self.units = self.bias.size
        self.vectors = IntegerVectors(self.b, asymmetric=self.attrs.asymmetric)
        self.span = group.anchor.span

    def lower(self) -> Lowered:
        b, sizes = self.b, self.sizes
        with b.for_("i", self.output.size) as i:
            b.store(self.output, i, self.first[i])
        with b.for_("batch", sizes.batch) as batch, b.for_("pass", self.attrs.passes), b.for_("t", sizes.steps) as t:
            at = imm(sizes.steps - 1) - t if self.attrs.backward else t
            place = b.let("place", at * sizes.batch + batch if self.attrs.time_major else batch * sizes.steps + at)
            self._step(place, b.let("state", batch * self.units))
        macs = sizes.steps * sizes.batch * sum(m.size for m in self.matrices)
        return Lowered(b.finish(FuncAttrs(kernel="generic.rnn", span=self.span, macs=macs)), self.constants)

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
        """Data, output and auxiliary data of a step: where they begin, and their sizes."""
        found = [(self.data, place * self.sizes.depth, self.sizes.depth), (self.output, state, self.units)]
        for data in self.auxiliary:
            depth = data.size // (self.sizes.steps * self.sizes.batch)
            found.append((data, place * depth, depth))
        return [(data, self.b.let("first", first), depth) for data, first, depth in found]

    def _added(self, value: Expr, which: int, n: Expr, source: tuple[Buffer, Expr, int]) -> Expr:
        """value + row n of a matrix times a vector."""
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


def accepts(group: Group, _target: Target) -> bool:
    """One call, whose weights are constants."""
    args = group.anchor.args
    return not group.followers and all(isinstance(a, Constant) for a in (*args[2:5], *args[6:]))


def lower(group: Group, _target: Target, name: str) -> Lowered:
    return RnnKernel(group, name).lower()


register_impl(OpImplementation("generic.rnn", "nn.rnn", accepts, lower))
