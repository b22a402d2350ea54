"""The transforms of `aot.numerics.split_radix` as statements: doubles in scratch memory, in place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field

import numpy as np

from aot.ir.op import Array
from aot.numerics import split_radix
from aot.numerics.split_radix import KEPT, MIDDLE, OTHER, START, Complex
from aot.support.dataclass import dataclass
from aot.tir.buffer import Buffer
from aot.tir.expr import Expr, binop, cast, imm
from aot.topi.generic.flat import FlatKernel


@dataclass(frozen=True, slots=True)
class Transforms:
    """Emits transforms of `buffer`, whose points are pairs of doubles; equal tables are there once."""

    kernel: FlatKernel
    buffer: Buffer
    tables: dict[bytes, Buffer] = field(default_factory=dict)

    def _table(self, name: str, data: Array) -> Buffer:
        key = data.dtype.str.encode() + data.tobytes()
        if key not in self.tables:
            self.tables[key] = self.kernel.table(name, np.ascontiguousarray(data).reshape(-1))
        return self.tables[key]

    def name(self, value: Expr) -> Expr:
        return self.kernel.b.let("y", value)

    def point(self, base: Expr, index: Expr | int, buffer: Buffer | None = None) -> Complex:
        """Point `index` after number `base` of a buffer."""
        b, source = self.kernel.b, self.buffer if buffer is None else buffer
        at = b.let("at", base + index * 2)
        return b.let("x", source[at]), b.let("x", source[at + 1])

    def put(self, base: Expr, index: Expr | int, value: Complex) -> None:
        at = self.kernel.b.let("at", base + index * 2)
        self.kernel.b.store(self.buffer, at, value[0])
        self.kernel.b.store(self.buffer, at + 1, value[1])

    def complex(self, base: Expr, n: int) -> None:
        """The transform of the n points from number `base` on."""
        for level in split_radix.levels(n):
            for kind, starts in ((1, level.first), (2, level.second)):
                if starts:
                    with self._each(base, starts) as start:
                        self._block(start, level.size, kind=kind, outermost=level.size == n)
        self._reorder(base, n)

    @contextmanager
    def _each(self, base: Expr, starts: Sequence[int]) -> Iterator[Expr]:
        b = self.kernel.b
        if len(starts) == 1:
            yield base + 2 * starts[0]
            return
        table = self._table("starts", np.array(starts, np.uint16))
        with b.for_("block", len(starts)) as i:
            yield b.let("start", base + cast("int32", table[i]) * 2)

    def _block(self, start: Expr, size: int, *, kind: int, outermost: bool) -> None:
        if size == 2:
            for i, value in enumerate(split_radix.pair(self.name, [self.point(start, i) for i in range(2)], kind=kind)):
                self.put(start, i, value)
            return
        quarter, middle = size // 4, size // 8
        factors = split_radix.first_factors(size, outermost=outermost) if kind == 1 else split_radix.second_factors(size)
        self._butterfly(start, size, 0, [], kind=kind)
        if quarter == 1:
            return
        if quarter <= 4:
            for place in range(1, quarter):
                w = [(imm(float(r), "float64"), imm(float(i), "float64")) for r, i in factors[place]]
                self._butterfly(start, size, place, w, kind=kind)
            return
        table, b = self._table("factors", factors), self.kernel.b
        with b.for_("p", quarter, start=1) as p, b.if_(binop("!=", p, middle)):
            w = [self.point(p * factors[0].size, i, table) for i in range(len(factors[0]))]
            self._butterfly(start, size, p, w, kind=kind)
        w = [(imm(float(r), "float64"), imm(float(i), "float64")) for r, i in factors[middle]]
        self._butterfly(start, size, middle, w, kind=kind)

    def _butterfly(self, start: Expr, size: int, place: Expr | int, w: Sequence[Complex], *, kind: int) -> None:
        """Four points, a quarter apart; a place that is an expression is neither the first nor the middle one."""
        known = place if isinstance(place, int) else -1
        where = START if known == 0 else MIDDLE if kind == 1 and known == size // 8 else OTHER
        signs = split_radix.signs_at(size, known, kind=kind) if known >= 0 else KEPT
        at = [place + size // 4 * q for q in range(4)]
        butterfly = split_radix.first_butterfly if kind == 1 else split_radix.second_butterfly
        for index, value in zip(at, butterfly(self.name, [self.point(start, i) for i in at], w, where, signs), strict=True):
            self.put(start, index, value)

    def _reorder(self, base: Expr, n: int) -> None:
        swaps = [(i, r) for i, r in enumerate(split_radix.reversed_bits(n)) if i < r]
        if not swaps:
            return
        table, b = self._table("swaps", np.array(swaps, np.uint16)), self.kernel.b
        with b.for_("swap", len(swaps)) as i:
            one, other = (b.let("place", cast("int32", table[i * 2 + k])) for k in range(2))
            x, y = self.point(base, one), self.point(base, other)
            self.put(base, one, y)
            self.put(base, other, x)

    def real(self, base: Expr, n: int) -> None:
        """The spectrum of the n doubles from `base` on in their place, see `split_radix.real_transform`."""
        if n > 2:
            self.complex(base, n // 2)
        if n > 4:
            table, b = self._table("real_factors", split_radix.real_factors(n)), self.kernel.b
            with b.for_("j", n // 4, start=1) as j:
                far = b.let("far", imm(n // 2) - j)
                w = self.point(imm(0), j, table)
                first, last = split_radix.join(self.name, self.point(base, j), self.point(base, far), w)
                self.put(base, j, first)
                self.put(base, far, last)
        x = self.point(base, 0)
        self.put(base, 0, (self.name(x[0] + x[1]), self.name(x[0] - x[1])))
