"""Scalar intrinsics: fixed-point arithmetic and bytes of a word on every core, Armv7E-M's DSP extension, table lookups."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache

from aot.tir.arith import wrap
from aot.tir.builder import IRBuilder
from aot.tir.expr import cast
from aot.tir.intrin import BlockText, Intrin, TensorIntrin
from aot.topi.intrin.asm_text import Operands, asm

_INT32 = ("int32", "int32")


def srdhm(a: int, m: int) -> int:
    """gemmlowp's SaturatingRoundingDoublingHighMul: a * m / 2^31 rounded half up; INT32_MIN squared saturates.

    gemmlowp divides ab + (ab >= 0 ? 2^30 : 1 - 2^30) by 2^31 towards zero, which equals floor((ab + 2^30) / 2^31) for either
    sign.
    """
    return min((a * m + (1 << 30)) >> 31, (1 << 31) - 1)


def rdbpot(x: int, n: int) -> int:
    """gemmlowp's RoundingDivideByPOT: x / 2^n, ties away from zero."""
    mask = (1 << n) - 1
    return (x >> n) + int((x & mask) > (mask >> 1) + int(x < 0))


def requantize_double(x: int, m: int, shift: int) -> int:
    """TFLite's MultiplyByQuantizedMultiplier as in its reference kernels of convolutions; x * 2^shift wraps as in C."""
    return rdbpot(srdhm(wrap(x << max(shift, 0), "int32"), m), max(-shift, 0))


def requantize_single(x: int, m: int, shift: int) -> int:
    """TFLite's MultiplyByQuantizedMultiplier with TFLITE_SINGLE_ROUNDING."""
    total = 31 - shift
    return wrap((x * m + (1 << (total - 1))) >> total, "int32")


def _mulhi(a: int, m: int) -> int:
    return (a * m) >> 32


def _mulhi_round(a: int, m: int) -> int:
    return wrap((a * m + (1 << 31)) >> 32, "int32")


MULHI = Intrin("mulhi", _INT32, "int32", "aot_mulhi({0}, {1})", _mulhi)
MULHI_ROUND = Intrin("mulhi_round", _INT32, "int32", "aot_mulhi_round({0}, {1})", _mulhi_round)
SRDHM = Intrin("srdhm", _INT32, "int32", "aot_srdhm({0}, {1})", srdhm)
RDBPOT = Intrin("rdbpot", _INT32, "int32", "aot_rdbpot({0}, {1})", rdbpot)
REQUANTIZE_DOUBLE = Intrin(
    "requantize_double", ("int32",) * 3, "int32", "aot_requantize_double({0}, {1}, {2})", requantize_double
)
REQUANTIZE_SINGLE = Intrin(
    "requantize_single", ("int32",) * 3, "int32", "aot_requantize_single({0}, {1}, {2})", requantize_single
)


# Instructions of Armv7E-M's DSP extension, and register blocks that use them.
#
# Scalar intrinsics are named after the instruction, with its rotation if it has one (`SXTB16_ROR8`).  Halfword and byte operands
# are uint32; accumulators are int32 and wrap as in hardware.  `saturate` gives SSAT and USAT with a shift.


U, S, D = "uint32", "int32", "int64"


def _half(x: int, n: int) -> int:
    return wrap(x >> (16 * n), "int16")


def _byte(x: int, n: int) -> int:
    return wrap(x >> (8 * n), "int8")


def _pack(low: int, high: int) -> int:
    return (low & 0xFFFF) | ((high & 0xFFFF) << 16)


def _w(value: int) -> int:
    return wrap(value, "int32")


def _sat(value: int, bits: int) -> int:
    return min(max(value, -(1 << (bits - 1))), (1 << (bits - 1)) - 1)


def _ll(a: int, b: int) -> int:
    return _half(a, 0) * _half(b, 0)


def _hh(a: int, b: int) -> int:
    return _half(a, 1) * _half(b, 1)


ALL: dict[str, Intrin] = {}
"""Every scalar intrinsic of this file, by name."""


def _dsp(name: str, args: tuple[str, ...], dtype: str, py: Callable[..., int], *, requires: str = "dsp") -> Intrin:
    holes = ", ".join(f"{{{i}}}" for i in range(len(args)))
    ALL[name] = Intrin(name, args, dtype, f"aot_{name}({holes})", py, requires=requires)
    return ALL[name]


SMLAD = _dsp("smlad", (U, U, S), S, lambda a, b, acc: _w(acc + _ll(a, b) + _hh(a, b)))
SMMULR = _dsp("smmulr", (S, S), S, lambda a, b: _w((a * b + (1 << 31)) >> 32))
SMMLA = _dsp("smmla", (S, S, S), S, lambda a, b, acc: _w(((acc << 32) + a * b) >> 32))
SMMLAR = _dsp("smmlar", (S, S, S), S, lambda a, b, acc: _w(((acc << 32) + a * b + (1 << 31)) >> 32))
SMLAL = _dsp("smlal", (S, S, D), D, lambda a, b, acc: wrap(acc + a * b, D), requires="")

SXTB16 = _dsp("sxtb16", (U,), U, lambda a: _pack(_byte(a, 0), _byte(a, 2)))
SXTB16_ROR8 = _dsp("sxtb16_ror8", (U,), U, lambda a: _pack(_byte(a, 1), _byte(a, 3)))
UXTB16 = _dsp("uxtb16", (U,), U, lambda a: a & 0x00FF00FF)
UXTB16_ROR8 = _dsp("uxtb16_ror8", (U,), U, lambda a: (a >> 8) & 0x00FF00FF)
SXTAB16 = _dsp("sxtab16", (U, U), U, lambda a, b: _pack(_half(a, 0) + _byte(b, 0), _half(a, 1) + _byte(b, 2)))
SXTAB16_ROR8 = _dsp("sxtab16_ror8", (U, U), U, lambda a, b: _pack(_half(a, 0) + _byte(b, 1), _half(a, 1) + _byte(b, 3)))
PKHBT = _dsp("pkhbt", (U, U), U, lambda a, b: _pack(a, b >> 16))
PKHTB = _dsp("pkhtb", (U, U), U, lambda a, b: _pack(b, a >> 16))

SADD16 = _dsp("sadd16", (U, U), U, lambda a, b: _pack(_half(a, 0) + _half(b, 0), _half(a, 1) + _half(b, 1)))
SSUB16 = _dsp("ssub16", (U, U), U, lambda a, b: _pack(_half(a, 0) - _half(b, 0), _half(a, 1) - _half(b, 1)))
QSUB16 = _dsp("qsub16", (U, U), U, lambda a, b: _pack(_sat(_half(a, 0) - _half(b, 0), 16), _sat(_half(a, 1) - _half(b, 1), 16)))


def _saturate(op: str, bits: int, shift: int) -> Intrin:
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if op == "ssat" else (0, (1 << bits) - 1)
    name = f"{op}{bits}_asr{shift}" if shift else f"{op}{bits}"
    return _dsp(name, (S,), S, lambda x: min(max(x >> shift, low), high), requires="")


_SATURATE = {
    (op, bits, shift): _saturate(op, bits, shift) for op, bits in (("ssat", 8), ("ssat", 16), ("usat", 8)) for shift in range(25)
}


def saturate(op: str, bits: int, shift: int = 0) -> Intrin:
    """SSAT or USAT of `x >> shift` to 8 or 16 bits, 0 <= shift <= 24; cores without these instructions get a clamp."""
    return _SATURATE[op, bits, shift]


@lru_cache(maxsize=64)
def smlad_2x4(pairs: int, channels: int = 4) -> TensorIntrin:
    """Two pixels by up to four channels of a stream of four: acc[p, c] = acc[0, c] + sum of x[k, p, j] * w[k, c, j].

    The sum is over k < pairs, j < 2.  acc: int32[2, channels] in registers; the first pixel's values are the initial values of
    both pixels.  x: int16[pairs, 2, 2] and w: int16[pairs, 4, 2], both aligned to 4 bytes.

    8 SMLAD and 3 LDRD do 16 multiply-accumulates.  The loop is inside of one asm block and unrolled up to four times.  Four
    channels use all 14 registers, so the loop compares its pointer with a word on the stack.  GCC 12 fails to allocate registers
    for some blocks with 14 of them, if results are dropped or two initial values are equal: such channels are not operands, and
    the block copies the numbers itself.
    """
    if pairs < 1 or not 1 <= channels <= 4:
        raise ValueError("smlad_2x4 needs at least one pair, and one to four channels")
    name = f"smlad_2x{channels}_k{2 * pairs}"
    b = IRBuilder(name)
    x = b.input("x", (pairs, 2, 2), "int16", align=4)
    w = b.input("w", (pairs, 4, 2), "int16", align=4)
    acc = b.output("acc", (2, channels), "int32")
    for n in range(channels):
        b.store(acc, (1, n), acc[0, n])
    with b.for_("k", pairs) as k, b.for_("p", 2, kind="unroll") as p, b.for_("c", channels, kind="unroll") as c:
        products = [cast("int32", x[k, p, j]) * cast("int32", w[k, c, j]) for j in range(2)]
        b.store(acc, (p, c), acc[p, c] + (products[0] + products[1]))
    return TensorIntrin(f"arm_dsp.{name}", b.finish(), lambda ops: _emit_smlad_2x4(ops, pairs, channels), requires="dsp")


def smlad_2x4_instructions(channels: int) -> int:
    """Instructions per pair of taps, without the end of the loop."""
    return len(_step(channels))


def _step(channels: int) -> list[str]:
    """The code for a pair of taps; the pointer to the weights advances by the weights of all four channels."""
    text = []
    for first in range(0, channels, 2):
        past = 8 if first + 2 < channels else 16 - 4 * first
        load = "ldrd %[w0], %[w1]" if first + 1 < channels else "ldr %[w0]"
        text.append(f"{load}, [%[wp]], #{past}")
        if first == 0:
            text.append("ldrd %[x0], %[x1], [%[xp]], #8")
        for c in range(first, min(first + 2, channels)):
            accs = (f"%[a{p * channels + c}]" for p in range(2))
            text += [f"smlad {acc}, %[w{c - first}], %[x{p}], {acc}" for p, acc in enumerate(accs)]
    return text


def _emit_smlad_2x4(operands: Operands, pairs: int, channels: int) -> BlockText:
    unroll = max(u for u in (4, 3, 2, 1) if pairs % u == 0)
    loop = pairs != unroll
    copies = [f"mov %[a{channels + c}], %[a{c}]" for c in range(channels)]
    text = [*copies, *(["1:"] if loop else []), *(_step(channels) * unroll)]
    if loop:
        text += ["ldr %[w0], %[end]", "cmp %[xp], %[w0]", "bne 1b"]
    words = [w for w in ("w0", "w1", "x0", "x1") if w != "w1" or channels > 1]
    outs = [f'[a{i}] "{"+r" if i < channels else "=&r"}"({name})' for i, name in enumerate(operands["acc"].scalars)]
    end = {"xp:m": f"{8 * pairs}"} if loop else {}
    return asm(operands, text, "wp=w xp=x", end=end, first=outs, temporaries=words, temporaries_first=True, kind="+")


# Intrinsics on the four bytes of a word, for every core: `aot/bytes.h` implements them with DSP instructions and in portable C.


def _bytewise(name: str, dtype: str, choose: Callable[[int, int], int]) -> Intrin:
    def meaning(a: int, b: int) -> int:
        pairs = [(wrap(a >> (8 * k), dtype), wrap(b >> (8 * k), dtype)) for k in range(4)]
        return sum((choose(x, y) & 0xFF) << (8 * k) for k, (x, y) in enumerate(pairs))

    return Intrin(name, ("uint32", "uint32"), "uint32", f"aot_{name}({{0}}, {{1}})", meaning, header="aot/bytes.h")


SMAX8 = _bytewise("smax8", "int8", max)
SMIN8 = _bytewise("smin8", "int8", min)
UMAX8 = _bytewise("umax8", "uint8", max)
UMIN8 = _bytewise("umin8", "uint8", min)

LARGER = {"int8": SMAX8, "uint8": UMAX8}
SMALLER = {"int8": SMIN8, "uint8": UMIN8}


def splat(value: int) -> int:
    """The word whose four bytes all are `value`."""
    return (value & 0xFF) * 0x01010101


# A lookup of a requantised result in a table of bytes: one load, indexed by the signed value from the middle of the table.


CODES = 256


@cache
def lookup(count: int) -> TensorIntrin:
    """values[i] = table[values[i] + 128]; operands: table int8[256], values int32[count] within int8.

    GCC would add 128 to each value; here it is part of the table's address.
    """
    b = IRBuilder(f"lookup_{count}")
    table = b.input("table", (CODES,), "int8")
    values = b.output("values", (count,), "int32")
    for i in range(count):
        b.store(values, i, table[values[i] + CODES // 2])
    return TensorIntrin(f"lookup_{count}", b.finish(), _emit_lookup, requires="thumb2")


def _emit_lookup(operands: Operands) -> BlockText:
    middle = [f"const int8_t *const aot_middle = {operands['table'].pointer} + {CODES // 2};"]
    text = [f"ldrsb %[v{i}], [%[t], %[v{i}]]" for i in range(len(operands["values"].scalars))]
    return asm(operands, text, "", {"t": "aot_middle"}, acc="v=values", before=middle)
