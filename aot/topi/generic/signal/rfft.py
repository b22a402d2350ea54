"""signal.rfft and signal.irfft: a transform of half the length over pairs of samples, and the step that splits or joins.

The bins of a row are computed where the result lies; the inverse needs the pairs of a row once more, as scratch memory.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np

from aot.numerics import kissfft
from aot.numerics.kissfft import FRACTION_BITS, Complex, Stage
from aot.relay.expr import tensor_type
from aot.support.dataclass import dataclass
from aot.support.dtype import is_float
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, imm, select
from aot.topi.generic.flat import FlatKernel, accepts_alone, flat_kernel
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl


@dataclass(frozen=True, slots=True)
class Expressions:
    """Samples as expressions, each named: float32, or int32 that hold values of the fixed-point type."""

    b: IRBuilder
    dtype: str

    def load(self, buffer: Buffer, index: Expr) -> Expr:
        """One number."""
        return self.b.let("x", buffer[index] if is_float(self.dtype) else cast("int32", buffer[index]))

    def point(self, buffer: Buffer, index: Expr) -> Complex:
        """Number 2 * index and the next."""
        base = self.b.let("at", index * 2)
        return self.load(buffer, base), self.load(buffer, base + 1)

    def put(self, buffer: Buffer, index: Expr, value: Complex) -> None:
        base = self.b.let("at", index * 2)
        self.b.store(buffer, base, value[0])
        self.b.store(buffer, base + 1, value[1])

    def _wrapped(self, op: Callable[[Any, Any], Any], a: Expr, b: Expr) -> Expr:
        if self.dtype == "int32":
            return self.b.let("y", cast("int32", op(cast("uint32", a), cast("uint32", b))))
        return self.b.let("y", op(a, b) if is_float(self.dtype) else cast("int32", cast("int16", op(a, b))))

    def plus(self, a: Expr, b: Expr) -> Expr:
        return self._wrapped(lambda x, y: x + y, a, b)

    def minus(self, a: Expr, b: Expr) -> Expr:
        return self._wrapped(lambda x, y: x - y, a, b)

    def negated(self, a: Expr) -> Expr:
        return self.b.let("y", -a) if is_float(self.dtype) else self.minus(imm(0), a)

    def _product(self, a: Expr, b: Expr) -> Expr:
        return cast("int64", a) * cast("int64", b) if self.dtype == "int32" else a * b

    def _rounded(self, x: Expr) -> Expr:
        bits = FRACTION_BITS[self.dtype]
        return self.b.let("y", cast("int32", cast(self.dtype, (x + (1 << (bits - 1))) >> bits)))

    def times(self, a: Expr, b: Expr) -> Expr:
        return self.b.let("y", a * b) if is_float(self.dtype) else self._rounded(self._product(a, b))

    def dot(self, a: Complex, b: Complex, *, minus: bool) -> Expr:
        first, second = self._product(a[0], b[0]), self._product(a[1], b[1])
        total = first - second if minus else first + second
        return self.b.let("y", total) if is_float(self.dtype) else self._rounded(total)

    def divided(self, a: Expr, by: int) -> Expr:
        if is_float(self.dtype):
            return a
        return self._rounded(self._product(a, imm(((1 << FRACTION_BITS[self.dtype]) - 1) // by)))

    def halved(self, a: Expr, b: Expr | None = None, *, minus: bool = False) -> Expr:
        if b is not None and self.dtype == "int32":
            a = self.minus(a, b) if minus else self.plus(a, b)
        elif b is not None:
            a = a - b if minus else a + b
        half = a * 0.5 if is_float(self.dtype) else cast("int32", cast(self.dtype, a >> 1))
        return self.b.let("y", half)


@dataclass(frozen=True, slots=True)
class _Plan:
    """One transform of `n` points as statements: its arithmetic, its tables, its direction."""

    a: Expressions
    n: int
    table: Buffer
    half_table: Buffer
    inverse: bool


def _plan(kernel: FlatKernel, length: int, *, inverse: bool) -> _Plan:
    n, dtype = length // 2, kernel.out.dtype
    table = kernel.table("twiddles", kissfft.twiddles(n, dtype, inverse=inverse).reshape(-1))
    half = kernel.table("half_twiddles", kissfft.half_twiddles(n, dtype, inverse=inverse).reshape(-1))
    return _Plan(Expressions(kernel.b, dtype), n, table, half, inverse)


def _reorder(plan: _Plan, load: Callable[[Expr], Complex], out: Buffer, base: Expr) -> None:
    """Points of `load` to the places where the first stage expects them: one loop a factor."""
    b = plan.a.b
    with ExitStack() as loops:
        place: Expr = base
        source: Expr = imm(0)
        for s in kissfft.stages(plan.n):
            digit = loops.enter_context(b.for_("d", s.radix))
            place, source = place + digit * s.length, source + digit * s.blocks
        plan.a.put(out, b.let("place", place), load(b.let("source", source)))


def _stage(plan: _Plan, s: Stage, out: Buffer, base: Expr) -> None:
    """All butterflies of one stage, in place; twiddle 0 is not 1 in fixed point, so every point is multiplied."""
    a, b = plan.a, plan.a.b
    roots = [a.point(plan.table, imm(s.blocks * s.length * q % plan.n)) for q in range(s.radix)] if s.radix in (3, 5) else []
    with b.for_("block", s.blocks) as block, b.for_("k", s.length) as k:
        first = b.let("first", base + block * (s.radix * s.length) + k)
        points = [a.point(out, first + q * s.length) for q in range(s.radix)]
        w = [a.point(plan.table, k * (s.blocks * q)) if q else (imm(0), imm(0)) for q in range(s.radix)]
        for q, value in enumerate(kissfft.butterfly(a, points, w, roots, inverse=plan.inverse)):
            a.put(out, first + q * s.length, value)


def _transform(plan: _Plan, load: Callable[[Expr], Complex], out: Buffer, base: Expr) -> None:
    _reorder(plan, load, out, base)
    for s in reversed(kissfft.stages(plan.n)):
        _stage(plan, s, out, base)


def lower_rfft(group: Group, _target: Target, name: str) -> Lowered:
    kernel = flat_kernel(group, name)
    b, (data,), out = kernel.b, kernel.args, kernel.out
    length, given = group.anchor.attrs.length, tensor_type(group.anchor.args[0]).shape[-1]
    plan = _plan(kernel, length, inverse=False)
    a, n = plan.a, plan.n
    with b.for_("m", out.size // (length + 2)) as m:
        row, base = b.let("row", m * given), b.let("base", m * (n + 1))

        def sample(index: Expr) -> Expr:
            zero = imm(0.0, "float32") if is_float(data.dtype) else imm(0, data.dtype)
            found = data[row + index] if given == length else select(index < given, data[row + index], zero)
            return b.let("x", found if is_float(data.dtype) else cast("int32", found))

        _transform(plan, lambda p: (sample(p * 2), sample(p * 2 + 1)), out, base)
        even, odd = kissfft.divide(a, a.point(out, base), 2)
        zero = imm(0.0, "float32") if is_float(data.dtype) else imm(0)
        a.put(out, base + n, (a.minus(even, odd), zero))
        a.put(out, base, (a.plus(even, odd), zero))
        with b.for_("k", n // 2 + 1, start=1) as k:
            near, far = a.point(out, base + k), a.point(out, base + (imm(n) - k))
            first, last = kissfft.split(a, near, far, a.point(plan.half_table, k - 1))
            a.put(out, base + k, first)
            a.put(out, base + (imm(n) - k), last)
    return kernel.finish("rfft")


def lower_irfft(group: Group, _target: Target, name: str) -> Lowered:
    kernel = flat_kernel(group, name)
    b, (data,), out = kernel.b, kernel.args, kernel.out
    length = group.anchor.attrs.length
    plan = _plan(kernel, length, inverse=True)
    a, n = plan.a, plan.n
    points = b.scratch("points", (length,), out.dtype)
    with b.for_("m", out.size // length) as m:
        row, base = b.let("row", m * (n + 1)), b.let("base", m * n)
        low, high = a.point(data, row)[0], a.point(data, row + n)[0]
        a.put(points, imm(0), kissfft.divide(a, (a.plus(low, high), a.minus(low, high)), 2))
        with b.for_("k", n // 2 + 1, start=1) as k:
            near, far = a.point(data, row + k), a.point(data, row + (imm(n) - k))
            first, last = kissfft.join(a, near, far, a.point(plan.half_table, k - 1))
            a.put(points, k, first)
            a.put(points, imm(n) - k, last)
        _transform(plan, lambda p: a.point(points, p), out, base)
        if is_float(out.dtype):
            with b.for_("i", length) as i:
                b.store(out, base * 2 + i, out[base * 2 + i] / imm(float(np.float32(length)), "float32"))
    return kernel.finish("irfft")


register_impl(OpImplementation("generic.rfft", "signal.rfft", accepts_alone, lower_rfft))
register_impl(OpImplementation("generic.irfft", "signal.irfft", accepts_alone, lower_irfft))
