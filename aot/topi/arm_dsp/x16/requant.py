"""Requantisation by multipliers of 62 bits in two long products, for sums of 32 bits.

`multiply_by_long_multiplier` adds half of 2^right and shifts by right = 31 - shift.  From right = 33 on the half has no bits in
the lower word, so that nothing is carried from there: only the upper word of the product is needed.
"""

from __future__ import annotations

import numpy as np

from aot.op.qnn.requantize import RequantizeAttrs
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, clamp, imm
from aot.topi.intrin.scalar import saturate
from aot.topi.layer.requant import Field, General, Requant

LEAST_RIGHT, MOST_RIGHT = 33, 61


@dataclass(frozen=True, slots=True)
class LongMultiply:
    """Fields: multiplier, its 31 further bits, half of a result, shift of the upper word."""

    fields: tuple[Field, ...]
    lo: int
    hi: int

    def emit(self, b: IRBuilder, acc: Expr, fields: tuple[Expr, ...]) -> Expr:
        """The clamped int32 result of an accumulator that fits int32."""
        multiplier, fraction, half, shift = fields
        x = b.let("x", cast("int32", acc))
        wide = cast("int64", x)
        low = b.let("low", cast("int32", (wide * cast("int64", fraction) + cast("int64", x >> 31)) >> imm(31, "int64")))
        high = cast("int32", (wide * cast("int64", multiplier) + cast("int64", low)) >> imm(32, "int64"))
        result = (high + half) >> shift
        return saturate("ssat", 16, 0)(result) if (self.lo, self.hi) == int_range("int16") else clamp(result, self.lo, self.hi)


AnyRequant = Requant | LongMultiply


def with_short_products(requant: Requant) -> AnyRequant:
    """The form above where it is exact, else `requant`; sums have to fit int32, cores to have DSP instructions."""
    if not isinstance(requant, General) or not requant.attrs.fraction or requant.attrs.zero_point:
        return requant
    attrs: RequantizeAttrs = requant.attrs
    numbers = {f.name: f.values.astype(np.int64) for f in requant.fields}
    right = 31 - numbers["shift"]
    if (right < LEAST_RIGHT).any() or (right > MOST_RIGHT).any():
        return requant
    fields = (
        Field("multiplier", numbers["multiplier"]),
        Field("fraction", numbers["fraction"]),
        Field("half", 1 << (right - LEAST_RIGHT)),
        Field("shift", right - 32),
    )
    return LongMultiply(fields, attrs.lo, attrs.hi)
