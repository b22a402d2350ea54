"""What MVE kernels share: requantisation of four accumulators per vector in TensorFlow Lite's own steps; copying bytes.

VQRDMULH is gemmlowp's SaturatingRoundingDoublingHighMul.  VRSHL by a negative amount rounds halves up, but gemmlowp's
RoundingDivideByPOT rounds them away from zero: so 1 is subtracted from negative values first, unless these are clamped to the
zero point anyway.  With single rounding, a product is (VQDMULH(a, m) + 2^(s-1)) >> s: both steps round down, so only the last
rounding counts.  That needs s >= 1, which shifting the accumulator left beforehand ensures.

When bytes are copied, the last vector of a run is predicated, so nothing outside of it is accessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial

import numpy as np

from aot.ir.op import Array
from aot.op.qnn.quantize import RequantizeAttrs
from aot.support.dataclass import dataclass
from aot.tir.buffer import UNKNOWN_EXTENT
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, Var, cast, clamp
from aot.tir.intrin import TensorIntrin
from aot.topi.intrin.asm_text import Emit, asm, block_of
from aot.topi.intrin.scalar import REQUANTIZE_DOUBLE, REQUANTIZE_SINGLE

VECTOR = 16
"""Bytes of a vector."""
NEAR = 127
"""Largest offset of a byte vector load or store."""
MAX_SHIFT = 31


def splat(vector: str, value: int, width: int, core: str = "r0") -> list[str]:
    """Put a small number into all lanes."""
    return [f"mvn {core}, #{-1 - value}" if value < 0 else f"mov {core}, #{value}", f"vdup.{width} {vector}, {core}"]


@dataclass(frozen=True, slots=True)
class RequantForm:
    """Everything that the instructions of a layer depend on.

    `left`: some accumulators are first shifted left.  `ties`: instructions per vector that correct halves of negative values: 0
    if no correction is needed, 2 if all shifts are at least 1, else 3.
    """

    rounding: str
    zero_point: int
    lo: int
    hi: int
    left: bool
    ties: int

    @property
    def setup(self) -> list[str]:
        """Instructions before all blocks: the zero point in q7; limits narrower than int8 in q5 and q6."""
        lines = splat("q7", self.zero_point, 16) if self.zero_point else []
        lines += splat("q5", self.lo, 8) if self.lo > -128 else []
        return lines + (splat("q6", self.hi, 8) if self.hi < 127 else [])

    @property
    def field_bytes(self) -> int:
        """Bytes of a channel's numbers: bias and multiplier are words, shifts are bytes."""
        return 9 + self.left

    def requantise(self, stream: str, *vectors: str) -> list[str]:
        """Requantise vectors of accumulators of the same four channels to 32-bit results.

        Reads the numbers from the pointer in `stream`; overwrites q2 to q4.
        """
        lines = [f"vldrw.u32 q2, [{stream}], #16", f"vldrw.u32 q3, [{stream}], #16"]
        lines += [f"vadd.i32 {q}, {q}, q2" for q in vectors]
        lines += [f"vldrb.s32 q2, [{stream}, #4]", *(f"vshl.s32 {q}, {q}, q2" for q in vectors)] if self.left else []
        lines += [f"vldrb.s32 q4, [{stream}], #{8 if self.left else 4}", *(f"{self.multiply} {q}, {q}, q3" for q in vectors)]
        return lines + self.shift(vectors, "q2", "q4")

    @property
    def multiply(self) -> str:
        return "vqrdmulh.s32" if self.rounding == "double" else "vqdmulh.s32"

    def shift(self, vectors: Sequence[str], spare: str, amounts: str) -> list[str]:
        """Shift the products in `vectors` by `amounts`, a vector or a number (negative: right)."""
        lines: list[str] = []
        for q in vectors if self.ties else ():
            sign = [f"vand {spare}, {q}, {amounts}"] if self.ties == 3 else []
            lines += [*sign, f"vshr.s32 {spare}, {spare if sign else q}, #31", f"vadd.i32 {q}, {q}, {spare}"]
        return lines + [f"vrshl.s32 {q}, {f'{q}, ' * amounts.startswith('q')}{amounts}" for q in vectors]

    @property
    def narrow(self) -> list[str]:
        """Narrow q0 and q1 to bytes 0 and 2 of the words of q0; add the zero point and apply the limits."""
        lines = ["vqmovnb.s32 q0, q0", "vqmovnt.s32 q0, q1", *["vqadd.s16 q0, q0, q7"] * bool(self.zero_point)]
        lines += ["vqmovnb.s16 q0, q0", *["vmax.s8 q0, q0, q5"] * (self.lo > -128)]
        return lines + ["vmin.s8 q0, q0, q6"] * (self.hi < 127)

    def meaning(self, b: IRBuilder, acc: Expr, numbers: tuple[Expr, Expr, Expr]) -> Expr:
        """The result of an accumulator; `numbers`: bias, multiplier, shift."""
        bias, multiplier, shift = numbers
        step = REQUANTIZE_DOUBLE if self.rounding == "double" else REQUANTIZE_SINGLE
        total = b.let("total", cast("int32", cast("uint32", acc) + cast("uint32", bias)))
        return clamp(step(total, multiplier, shift) + self.zero_point, self.lo, self.hi)


@dataclass(frozen=True, slots=True)
class VectorRequant:
    """The form and each channel's numbers as int64: `right` (negative) shifts after the product, `left` before it."""

    form: RequantForm
    multiplier: Array
    right: Array
    left: Array

    def pack(self, bias: Array, channels: Sequence[int]) -> Array:
        """The numbers of `channels` as bytes: biases, multipliers, right shifts, and left shifts if needed; 0 for missing
        channels.
        """

        def piece(values: Array, dtype: str) -> Array:
            numbers = [int(values[c]) if c < values.size else 0 for c in channels]
            return np.array(numbers, np.int64).astype(dtype).view(np.int8)

        parts = [piece(bias, "<i4"), piece(self.multiplier, "<i4"), piece(self.right, "<i1")]
        return np.concatenate([*parts, *([piece(self.left, "<i1")] if self.form.left else [])])


def plan_vectors(attrs: RequantizeAttrs, low: Array, high: Array) -> VectorRequant | None:
    """The form for accumulators in [low[c], high[c]]; None for roundings other than the two of the reference kernels."""
    if attrs.dtype != "int8" or attrs.rounding == "away" or attrs.fraction:
        return None
    multiplier = np.broadcast_to(np.asarray(attrs.multiplier, np.int64), low.shape)
    shift = np.broadcast_to(np.asarray(attrs.shift, np.int64), low.shape)
    double = attrs.rounding == "double"
    left = np.maximum(shift, 0) if double else np.maximum(1 + shift, 0)
    right = shift - left
    magnitude = np.maximum(np.abs(low), np.abs(high))
    if (right < -MAX_SHIFT).any() or (left > MAX_SHIFT).any() or ((magnitude << left) >= 1 << 31).any():
        return None
    rounded = double and attrs.lo < attrs.zero_point and bool((low < 0).any()) and bool((right < 0).any())
    ties = (2 if (right < 0).all() else 3) if rounded else 0
    form = RequantForm(attrs.rounding, attrs.zero_point, attrs.lo, attrs.hi, bool(left.any()), ties)
    return VectorRequant(form, multiplier, right, left)


# ---- copying and filling runs of bytes ----

MOST_STRAIGHT = 8
"""Most vectors of a row without a loop over them."""


def _rows_block(name: str, emit: Emit, scalars: tuple[Var, ...], length: Var | int, to_step: Var | int) -> TensorIntrin:
    """to[r * to_step + i] = data[r * step + i] for r < rows, i < length; the first two of `scalars` are rows and step."""
    b = IRBuilder(name)
    data = b.input("data", (UNKNOWN_EXTENT,), "int8")
    to = b.output("to", (UNKNOWN_EXTENT,), "int8")
    numbers = {v.name: v for v in scalars}
    with b.for_("r", numbers["rows"]) as r, b.for_("i", length) as i:
        b.store(to, r * to_step + i, data[r * numbers["step"] + i])
    return block_of(b, "arm_mve", emit, *scalars)


@cache
def copy_rows() -> TensorIntrin:
    """to[r * to_step + i] = data[r * step + i] for r < rows, i < length; rows at least 1.

    Operands: data, to (int8, not overlapping); rows, length, step, to_step.
    """
    scalars = tuple(Var(n) for n in ("rows", "length", "step", "to_step"))
    text = ["1:", "mov r0, %[s]", "mov r1, %[d]", "wlstp.8 lr, %[n], 3f"]
    text += ["2:", "vldrb.u8 q0, [r0], #16", "vstrb.8 q0, [r1], #16", "letp lr, 2b", "3:"]
    text += ["add %[s], %[s], %[t]", "add %[d], %[d], %[u]", "subs %[rows], %[rows], #1", "bgt 1b"]
    ins, clobbers = "n=length t=step u=to_step", ["r0", "r1", "lr", "q0"]
    emit = partial(asm, text=text, pointers="s=data >d=to", ins=ins, counter="rows", clobbers=clobbers)
    return _rows_block("copy_rows", emit, scalars, scalars[1], scalars[3])


def copy_rows_instructions(rows: int, length: int) -> int:
    """Instructions that one block executes."""
    return rows * (7 + 3 * -(-length // VECTOR)) + 8


@cache
def pack_rows(length: int) -> TensorIntrin:
    """to[r * length + i] = data[r * step + i] for r < rows, i < length; rows at least 1.

    Operands: data, to (int8, not overlapping); rows, step.  Two instructions per vector, two for the loop.
    """
    whole, remainder = divmod(length, VECTOR)
    text = [f"mov lr, #{remainder}", "vctp.8 lr"] if remainder else []
    text += ["dls lr, %[rows]", "1:"]
    for v in range(whole):
        text += [f"vldrb.u8 q0, [%[s], #{VECTOR * v}]", "vstrb.8 q0, [%[d]], #16"]
    if remainder:
        text += ["vpstt", f"vldrbt.u8 q0, [%[s], #{VECTOR * whole}]", f"vstrbt.8 q0, [%[d]], #{remainder}"]
    text += ["add %[s], %[s], %[t]", "le lr, 1b"]
    emit = partial(asm, text=text, pointers="s=data >d=to", ins="rows t=step", clobbers=["lr", "q0"])
    return _rows_block(f"pack_rows_{length}", emit, (Var("rows"), Var("step")), length, length)


def pack_rows_straight(length: int) -> bool:
    """Whether `pack_rows` supports rows of that length."""
    return -(-length // VECTOR) <= MOST_STRAIGHT


def pack_rows_instructions(rows: int, length: int) -> int:
    """Instructions that one block executes."""
    whole, remainder = divmod(length, VECTOR)
    return rows * (2 * whole + 3 * bool(remainder) + 2) + 6 + 2 * bool(remainder)


@cache
def fill() -> TensorIntrin:
    """to[i] = value for i < length.  Operands: to (int8), value, length."""
    b = IRBuilder("fill")
    to = b.output("to", (UNKNOWN_EXTENT,), "int8")
    value, length = Var("value"), Var("length")
    with b.for_("i", length) as i:
        b.store(to, i, value)
    text = ["vdup.8 q0, %[v]", "wlstp.8 lr, %[n], 2f", "1:", "vstrb.8 q0, [%[d]], #16", "letp lr, 1b", "2:"]
    emit = partial(asm, text=text, pointers=">d=to", ins="v=value n=length", clobbers=["lr", "q0"])
    return block_of(b, "arm_mve", emit, value, length)


def fill_instructions(length: int) -> int:
    return 2 * -(-length // VECTOR) + 6
