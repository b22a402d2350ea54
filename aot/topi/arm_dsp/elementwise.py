"""Element-wise operators with DSP instructions: ADD and MUL of bytes, tables, QUANTIZE from float32 and DEQUANTIZE to float32.

All handle four bytes per word, with results packed back into words; each section says how.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import frexp
from typing import Literal

import numpy as np

from aot.ir.type import TensorType
from aot.op.common.te_rule import F_TE, TeContext
from aot.op.qnn.arithmetic import MultiplyAttrs
from aot.op.qnn.lut import LutAttrs
from aot.op.qnn.quantize import DequantizeAttrs, QuantizeAttrs, RequantizeAttrs, tir_quantize
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range
from aot.target.target import Target
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.buffer import UNKNOWN_EXTENT, Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, Var, cast, imm
from aot.tir.function import FuncAttrs
from aot.tir.intrin import BlockText, TensorIntrin
from aot.tir.stmt import Region
from aot.topi.intrin.asm_text import Operands, Repeat, asm, block_of
from aot.topi.intrin.scalar import splat
from aot.topi.layer.elementwise import (
    CODES,
    AddKernel,
    Flat,
    Kind,
    Limits,
    Rows,
    Runs,
    code_of_table,
    element_block,
    match_runs,
    register_flat,
    register_rows,
)
from aot.topi.layer.requant import HighMultiply, plan_high_multiply
from aot.topi.strategy import Group, Lowered, register_planned

LANES = 4

LEAST = 16
"""Fewest elements for which the loop pays."""

# ---- ADD ----
#
# Masking a word of bytes leaves two halves that hold bytes times 256.  SMLAW uses the upper 32 of the 48 bits of a product with
# such a half, so with a factor of 256 * A it adds exactly A * x: one instruction per operand and element.
#
# Limits lo, hi other than int8's: the bias makes sums less lo, so USAT clamps at lo.  UQADD8 adds 255 - (hi - lo) to four
# results, which saturates those above hi.  UADD8 of hi + 1 then moves all back, modulo 256.


def _emit_add(operands: Operands, limits: Limits) -> BlockText:
    """Emit 22 instructions for four elements, and two for the loop; three more for limits other than int8's."""
    shift, lo, hi = limits.shift, limits.lo, limits.hi

    def element(out: str, halves: str, x: str, y: str) -> list[str]:
        return [
            f"smlaw{halves} %[{out}], %[fa], %[{x}], %[bias]",
            f"smlaw{halves} %[{out}], %[fb], %[{y}], %[{out}]",
            f"{'usat' if limits.clamped else 'ssat'} %[{out}], #8, %[{out}], asr #{shift}",
        ]

    within = ["uqadd8 %[t], %[t], %[room]", f"mov %[r], #{splat(hi + 1)}", "uadd8 %[t], %[t], %[r]"] if limits.clamped else []
    text = [
        "1:",
        "ldr %[p], [%[x]], #4",
        "ldr %[q], [%[y]], #4",
        "and %[r], %[mask], %[p], lsl #8",
        "and %[s], %[mask], %[q], lsl #8",
        *element("t", "b", "r", "s"),
        *element("r", "t", "r", "s"),
        "and %[p], %[mask], %[p]",
        "and %[q], %[mask], %[q]",
        "bfi %[t], %[r], #16, #8",
        *element("r", "b", "p", "q"),
        *element("s", "t", "p", "q"),
        "bfi %[t], %[r], #8, #8",
        "bfi %[t], %[s], #24, #8",
        *within,
        "str %[t], [%[out]], #4",
        f"subs %[n], %[n], #{LANES}",
        "bne 1b",
    ]
    value = {n: operands[n].value for n in ("a", "b", "bias")}
    ins = {"fa": f"{value['a']} * 256", "fb": f"{value['b']} * 256", "bias": limits.moved(value["bias"]), "mask": "0xff00ff00u"}
    ins |= {"room": f"{splat(255 - hi + lo)}u"} if limits.clamped else {}
    return asm(operands, text, "x y >out", ins, counter="n=count", temporaries="pqrst")


def _add_cost(runs: Runs, limits: Limits) -> tuple[int, int]:
    more, left = 3 * limits.clamped, runs.length % LANES
    whole = runs.length - left
    return (24 + more) * whole // LANES + (8 + more) * left + 24, 150 + 4 * more + (30 + 2 * more) * left


def _add_name(limits: Limits) -> str:
    return f"arm_dsp.add_4_{limits.name}"


ADD = AddKernel("dsp", LEAST, _add_name, _emit_add, _add_cost, lambda _length: LANES, repeated=False)
register_rows("arm_dsp.add", "qnn.add", ADD.plan, plevel=25)

# ---- MUL: whole tensors, and gates of channels or of pixels ----
#
# Products of halfwords are requantised one by one.  A value less -128 is the byte with its sign bit flipped: for two bytes, twice
# that is a shifted AND; otherwise a subtraction and a doubling are two instructions.  If a negative product needs the constant
# less 1, SMLAL adds the product to 64 bits that begin as constant : 0, which does both; SMLSLD then puts the product of the other
# halves in its place.  With two words per iteration this is less than seven instructions per element for every pair of zero
# points.
#
# A gate of channels (squeeze and excitation) is prepared once, in scratch memory: two bytes per factor.  Runs are joined until
# they are long enough, and until their length is a multiple of four if the number of runs allows it.

ORDER = (0, 2, 1, 3)
"""The element in each half of the two words of four prepared factors: SXTAB16 extracts every second byte."""

LOWEST = -128
"""The zero point of the second operand that needs fewer instructions."""

JOINED = 64
"""Joined runs of this many elements are long enough."""

Second = Literal["bytes", "halves", "one"]
"""The second operand: bytes; prepared halfwords, twice the distances from the zero point in ORDER; or one such number for all."""

_SECOND: dict[Kind, Second] = {"whole": "bytes", "inner": "halves", "outer": "one"}


@dataclass(frozen=True, slots=True)
class Form:
    """What the loop's code depends on.

    The final shift, how halves round, what the second operand is, and whether its zero point is -128 (bytes only).
    """

    shift: int
    signed: bool
    second: Second
    lowest: bool = False

    @property
    def subtracted(self) -> bool:
        """Whether the second operand's zero point is an operand of the block."""
        return self.second == "bytes" and not self.lowest

    @property
    def constant_in_memory(self) -> bool:
        """Whether no element needs the requantisation's constant in a register."""
        return self.signed and self.subtracted

    @property
    def words(self) -> int:
        """Words per iteration."""
        return 2 if self.second == "bytes" and self.signed else 1

    @property
    def instructions(self) -> float:
        """Instructions per word, including its share of the loop."""
        return len(_word(self)) + 2 / self.words


def doubled_product(*, signed: bool) -> HighMultiply:
    """Return the meaning of the requantisation of a doubled product."""
    return HighMultiply((), np.array([1]), True, signed, -128, 127, "int8", True)


@cache
def multiply_4(form: Form) -> TensorIntrin:
    """out[i] = sat8(requantised((x[i] - zx) * (y[i] - zy))) for `count` elements, a multiple of LANES.

    Operands: x, y, out, m, c, zx, zy (only for `bytes`, and not if it is the lowest), count; x, out and bytes of y at any
    address; out may be x or y.  `halves`: y is int16, aligned to words.  `one`: y is int32, twice the factor.  m and c are the
    requantisation's multiplier and constant.
    """
    names = ("m", "c", "zx", *(("zy",) if form.subtracted else ()), "count")
    numbers = {n: Var(n) for n in names}
    b = IRBuilder(f"multiply_4_{form.second}{'_lowest' * form.lowest}_asr{form.shift}{'_signed' * form.signed}")
    x = b.input("x", (UNKNOWN_EXTENT,), "int8")
    halves = form.second == "halves"
    kind, align = ("int16", 4) if halves else ("int8", 1)
    factor = None if form.second == "one" else b.input("y", (UNKNOWN_EXTENT,), kind, align=align)
    one = Var("y")
    out = b.output("out", (UNKNOWN_EXTENT,), "int8")
    requant = doubled_product(signed=form.signed)
    with b.for_("i", numbers["count"], step=LANES) as i:
        doubled = []
        for lane in range(LANES):
            other: Expr = one
            if factor is not None and halves:
                other = cast("int32", factor[i + ORDER.index(lane)])
            elif factor is not None:
                other = (cast("int32", factor[i + lane]) - numbers.get("zy", imm(-128))) * 2
            doubled.append(b.let("p", (cast("int32", x[i + lane]) - numbers["zx"]) * other))
        for lane, p in enumerate(doubled):
            value = requant.emit_scaled(b, p, (numbers["m"], numbers["c"], imm(form.shift)))
            b.store(out, i + lane, cast("int8", value))
    return block_of(
        b, "arm_dsp", lambda ops: _emit_multiply(ops, form), *((one,) if factor is None else ()), *numbers.values(), ordered=True
    )


def _text(form: Form) -> list[str]:
    """Return the loop; with two words per iteration, the second half of an iteration handles an odd word first."""
    word = _word(form)
    count = [f"subs %[n], %[n], #{LANES * form.words}", "bne 1b"]
    if form.words == 1:
        return ["1:", *word, *count]
    return [f"tst %[n], #{LANES}", "itt ne", f"addne %[n], %[n], #{LANES}", "bne 2f", "1:", *word, "2:", *word, *count]


def _word(form: Form) -> list[str]:
    """Return the instructions for four elements."""
    even, odd = ("y", "y") if form.second == "one" else ("s", "q")
    lines = ["ldr %[p], [%[x]], #4", *_factors(form)]
    lines += ["sxtab16 %[r], %[zx], %[p]", "sxtab16 %[p], %[zx], %[p], ror #8"]
    if form.constant_in_memory:
        lines += [*_signed_pair(form, ("r", "s"), wide="tu", outs="uv"), "bfi %[u], %[v], #16, #8"]
    else:
        lines += [*_element(form, "u", "b", of=("r", even)), *_element(form, "r", "t", of=("r", even)), "bfi %[u], %[r], #16, #8"]
    if form.words > 1:
        lines += [*_signed_pair(form, ("p", "q"), wide="ts", outs="sr"), "bfi %[u], %[s], #8, #8", "bfi %[u], %[r], #24, #8"]
    else:
        lines += [*_element(form, "r", "b", of=("p", odd)), "bfi %[u], %[r], #8, #8"]
        lines += [*_element(form, "r", "t", of=("p", odd)), "bfi %[u], %[r], #24, #8"]
    return [*lines, "str %[u], [%[out]], #4"]


def _factors(form: Form) -> list[str]:
    """Return instructions that leave twice the second operand's distances from its zero point in s and q, as halfwords."""
    match form.second:
        case "one":
            return []
        case "halves":
            return ["ldrd %[s], %[q], [%[y]], #8"]
        case "bytes" if form.lowest:
            flipped = ["ldr %[q], [%[y]], #4", "eor %[q], %[q], #0x80808080"]
            return [*flipped, "and %[s], %[mask], %[q], lsl #1", "and %[q], %[mask], %[q], lsr #7"]
    less = ["ldr %[q], [%[y]], #4", "sxtab16 %[s], %[zy], %[q]", "sxtab16 %[q], %[zy], %[q], ror #8"]
    return [*less, *(f"sadd16 %[{n}], %[{n}], %[{n}]" for n in "sq")]


def _element(form: Form, out: str, half: str, *, of: tuple[str, str]) -> list[str]:
    return [
        f"smul{half}{half} %[t], %[{of[0]}], %[{of[1]}]",
        f"smmlar %[{out}], %[t], %[m], %[c]",
        *([f"add %[{out}], %[{out}], %[t], asr #31"] if form.signed else []),
        f"ssat %[{out}], #8, %[{out}], asr #{form.shift}",
    ]


def _signed_pair(form: Form, halves: tuple[str, str], *, wide: str, outs: str) -> list[str]:
    """Return the results of the lower and of the upper halves; `wide` are the lower and the upper word of the sum."""
    low, high = (f"%[{n}]" for n in wide)
    x, y = (f"%[{n}]" for n in halves)
    lines = [f"ldrd {low}, {high}, %[k]"]
    for product, out in (("smlaltt", outs[1]), ("smlsld", outs[0])):
        lines += [f"{product} {low}, {high}, {x}, {y}", f"smmlar %[{out}], {low}, %[m], {high}"]
        lines.append(f"ssat %[{out}], #8, %[{out}], asr #{form.shift}")
    return lines


def _emit_multiply(operands: Operands, form: Form) -> BlockText:
    value = {n: o.value for n, o in operands.items()}
    one = form.second == "one"
    twice: dict[str, str] = {n: f"(0u - (uint32_t)({value[n]}))" for n in ("zx", "zy") if n in value}
    twice |= {"y": f"(uint32_t)({value['y']})"} if one else {}
    ins = {n: value[n] for n in ("m" if form.constant_in_memory else "mc")}
    ins |= {n: f"({number} & 0xffffu) * 0x10001u" for n, number in twice.items()}
    ins |= {"mask": "0x01fe01feu"} if form.lowest else {}
    wide = []
    if form.words > 1:
        wide = [f"uint64_t aot_k = (uint64_t)(uint32_t)({value['c']}) << 32;"]
        ins["k:m"] = "aot_k"
    temporaries = "prtu" if one else "pqrstu" + "v" * form.constant_in_memory
    pointers = "x >out" if one else "x y >out"
    return asm(operands, _text(form), pointers, ins, counter="n=count", temporaries=temporaries, after=wide)


@dataclass(frozen=True, slots=True)
class Plan:
    """`joined` runs of `runs` at a time; `first`: the number of the operand that is as large as the result and not a gate.

    `numbers`: multiplier and constant of the requantisation.
    """

    runs: Runs
    joined: int
    first: int
    form: Form
    numbers: tuple[int, int]

    @property
    def length(self) -> int:
        return self.runs.length * self.joined


def plan(group: Group, target: Target) -> Plan | None:
    """Return None for other cores and operands, or if the short requantisation is not exact."""
    runs = match_runs(group, least=LANES, outer=True) if target.has("dsp") else None
    if runs is None or runs.rows * runs.length < LEAST:
        return None
    zps = group.anchor.attrs.input_zp
    first = runs.kinds.index("whole")
    if runs.kinds == ("whole", "whole") and zps[0] == LOWEST:
        first = 1
    joined = _joined(runs) if runs.kinds[1 - first] == "inner" else 1
    requant = short_requant(group.anchor.attrs, target)
    if requant is None:
        return None
    multiplier, constant, shift = (int(f.values[0]) for f in requant.params)
    second = _SECOND[runs.kinds[1 - first]]
    form = Form(shift, requant.signed, second, second == "bytes" and zps[1 - first] == LOWEST)
    return Plan(runs, joined, first, form, (multiplier, constant)) if shift else None


def _joined(runs: Runs) -> int:
    """Return how many runs are handled at a time."""
    fits = [n for n in range(1, runs.rows + 1) if runs.rows % n == 0 and (n == 1 or runs.length * (n - 1) < JOINED)]
    even = [n for n in fits if runs.length * n % LANES == 0]
    return max(even or [1])


def short_requant(attrs: MultiplyAttrs, target: Target) -> HighMultiply | None:
    """Return the requantisation in the short form, for all products of two bytes."""
    ends = [(-128 - zp, 127 - zp) for zp in attrs.input_zp]
    corners = [a * b for a in ends[0] for b in ends[1]]
    if (attrs.lo, attrs.hi) != int_range("int8"):
        return None
    requant = RequantizeAttrs((attrs.multiplier,), (attrs.shift,), attrs.zero_point, attrs.lo, attrs.hi, "double")
    return plan_high_multiply(requant, np.array([min(corners)]), np.array([max(corners)]), target=target)


def lower(group: Group, _target: Target, name: str, plan: Plan) -> Lowered:
    """Lower MUL: joined runs, four elements at a time, then the remainder element by element."""
    b = IRBuilder(name)
    runs, second = plan.runs, plan.form.second
    zp, other_zp = (group.anchor.attrs.input_zp[i] for i in (plan.first, 1 - plan.first))
    rows = Rows(b, group, runs)
    x, y = rows.pair[plan.first], rows.pair[1 - plan.first]
    if second == "halves":
        y = _prepared(b, y, plan, zp=other_zp)
    whole = plan.length - plan.length % LANES
    numbers = [imm(n) for n in (*plan.numbers, zp, *((other_zp,) if plan.form.subtracted else ()), whole)]
    with rows.each(plan.joined) as (r, at):
        tensors: list[Region | Expr] = [region(x, at), region(rows.out, at)]
        if second == "one":
            tensors += [b.let("factor", (cast("int32", y[r]) - other_zp) * 2)]
        else:
            tensors.insert(1, region(y, at if second == "bytes" else 0))
        b.block(multiply_4(plan.form), *tensors, *numbers)
        for i in range(whole, plan.length):
            b.store(rows.out, at + i, _product(b, group, rows, {"whole": at + i, "inner": imm(i % runs.length), "outer": r}))
    func = b.finish(FuncAttrs(kernel="arm_dsp.multiply", span=group.anchor.span))
    left = plan.length - whole
    looped = runs.rows // plan.joined * (round(plan.form.instructions * whole) // LANES + 20 * left + 10)
    prepared = 9 * plan.length + 10 if second == "halves" else 0
    code = 70 + 4 * len(_text(plan.form)) + 40 * left + 70 * bool(prepared)
    return Lowered(func, rows.constants, looped + prepared + 20, code)


def _product(b: IRBuilder, group: Group, rows: Rows, places: dict[Kind, Expr]) -> Expr:
    """Return one element by the operator's own rule, from the places of operands by kind."""

    def fixed(buffer: Buffer, place: Expr) -> TensorFn:
        return tensor_fn((1,), "int8", lambda _b, *_i: buffer.load("int8", place))

    pair = [fixed(v, places[kind]) for v, kind in zip(rows.pair, rows.runs.kinds, strict=True)]
    rule = F_TE.get("qnn.multiply")(TeContext(b), pair, group.anchor.attrs, TensorType((1,), "int8"))
    return rule.at(b, (imm(0),))


def _prepared(b: IRBuilder, gate: Buffer, plan: Plan, *, zp: int) -> Buffer:
    """Prepare a run's factors: twice their distances from the zero point, for all joined runs, each four in ORDER."""
    length = plan.length - plan.length % LANES
    halves = b.scratch("factors", (length,), "int16")
    period, lanes = plan.runs.length, LANES if plan.runs.length % LANES == 0 else 1
    with b.for_("k", plan.joined) as k, b.for_("i", period if plan.joined > 1 else length, step=lanes) as i:
        for lane in range(lanes):
            value = (cast("int32", gate[i + lane]) - zp) * 2
            first = k * period + i if plan.joined > 1 else i
            if lanes == LANES:
                b.store(halves, first + ORDER.index(lane), value)
            else:
                at = b.let("at", first)
                b.store(halves, at - at % LANES + (at % 2) * 2 + at % LANES // 2, value)
    return halves


register_planned("arm_dsp.multiply", "qnn.multiply", plan, lower, plevel=25)

# ---- tables: UXTB splits words of quantised values, ORR joins words of results ----

CODES_A_TURN = 32

_WORDS = ("r3", "r4", "r5", "r6")


@cache
def lut_words() -> TensorIntrin:
    """out[i] = table[uint8(x[i])] for `count` elements, a multiple of CODES_A_TURN.

    Operands: x and out int8, aligned to 4 bytes; table int8[256] in the order of the values' bits; count.
    """
    words = ", ".join(_WORDS)
    step = [f"ldmia %[x]!, {{{words}}}", *(line for r in _WORDS for line in _looked_up(r)), f"stmia %[o]!, {{{words}}}"]
    text: list[str | Repeat] = ["1:", Repeat(CODES_A_TURN // 16, step), f"subs %[n], %[n], #{CODES_A_TURN}", "bne 1b"]

    def emit(operands: Operands) -> BlockText:
        return asm(operands, text, "x *t=table >o=out", {}, counter="n=count", temporaries="abc", clobbers=_WORDS)

    return element_block(
        "arm_dsp.lut_words", {"x": "int8"}, "int8", code_of_table, emit, requires="thumb2", table="int8", align=(4, 4)
    )


def _looked_up(register: str) -> list[str]:
    """Return instructions that look up the four values of a register, in the same register."""
    a, b, c, t = (f"%[{n}]" for n in "abct")
    extract = [f"uxtb {a}, {register}", f"uxtb {b}, {register}, ror #8", f"uxtb {c}, {register}, ror #16"]
    look = [f"ldrb {r}, [{t}, {r}]" for r in (a, b, c, register)]
    join = [f"orr {a}, {a}, {b}, lsl #8", f"orr {a}, {a}, {c}, lsl #16", f"orr {register}, {a}, {register}, lsl #24"]
    return [*extract, f"lsr {register}, {register}, #24", *look, *join]


def _plan_lut(_data: TensorType, result: TensorType, attrs: LutAttrs) -> Flat:
    iterations, left = divmod(result.size, CODES_A_TURN)
    cost, table = (iterations * 94 + 7 * left + 20, 4 * 94 + 60), np.roll(np.asarray(attrs.table, np.int8), CODES // 2)
    return Flat(lut_words(), cost, table=table, per_iteration=CODES_A_TURN, align=4, remainder=code_of_table)


register_flat("arm_dsp.lut", "qnn.lut", _plan_lut, needs=["thumb2", "unaligned"], least=CODES_A_TURN, plevel=25)

# ---- QUANTIZE and DEQUANTIZE (cores that also have an FPU) ----
#
# VCVT to 16-bit fixed point with one fraction bit gives t = 2x truncated towards zero, saturated, and 0 for NaN.  Then half of t,
# rounded with halves away from zero, plus the zero point is (t - (t < 0) + 1 + 2*zp) >> 1: QSUB16 and the halving SHADD16 compute
# that for two results at once.  Saturation at +-16383.5 is far outside every range of quantised values.

NUMBERS_A_TURN = 8

_FLOATS = [f"s{i}" for i in range(4)]


def _stream_floats(
    operands: Operands, step: Sequence[str], temporaries: str, ins: dict[str, str], scale: str = "{}"
) -> BlockText:
    """Emit a loop over `step`, which does four elements and advances x and out; `scale`: its factor or divisor, in C."""
    text: list[str | Repeat] = ["1:", Repeat(NUMBERS_A_TURN // 4, step), f"subs %[n], %[n], #{NUMBERS_A_TURN}", "bne 1b"]
    declared = [f"const float aot_scale = {scale.format(operands['scale'].value)};"]
    ins = {"scale:t": "aot_scale", **ins}
    return asm(
        operands, text, "x >out", ins, counter="n=count", temporaries=temporaries, clobbers=_FLOATS, before=declared, kind="+"
    )


@cache
def quantize_8(dtype: str, zero_point: int, *, reciprocal: bool) -> TensorIntrin:
    """out[i] = clamp(zp + round(x[i] / scale)) for `count` elements, a multiple of NUMBERS_A_TURN; dtype int8 or uint8.

    Operands: x float32[count], out, scale, count.  `reciprocal`: the scale is a power of two, so the product with 1 / scale is
    the quotient.
    """
    scale, lowest = Var("scale", "float32"), int_range(dtype)[0]
    offset = 1 + 2 * (zero_point - lowest)  # values counted from the lowest: an unsigned byte each
    step = [
        "vldmia %[x]!, {s0-s3}",
        *[f"{'vmul.f32' if reciprocal else 'vdiv.f32'} {s}, {s}, %[scale]" for s in _FLOATS],
        *rounded_codes(),
        *(["eor %[a], %[a], #0x80808080"] if lowest else []),
        "str %[a], [%[out]], #4",
    ]
    ins = {"one": "0x00010001u", "offset": f"{offset | offset << 16:#x}u"}

    def element(b: IRBuilder, x: Expr) -> Expr:
        return cast(dtype, tir_quantize(b, x, scale=scale, zero_point=zero_point, limits=int_range(dtype)))

    def emit(operands: Operands) -> BlockText:
        return _stream_floats(operands, step, "abcd", ins, "1.0f / ({})" if reciprocal else "{}")

    name, suffix = f"arm_dsp.quantize_8_{dtype}", f"_zp{zero_point}{'_reciprocal' * reciprocal}"
    return element_block(
        name, {"x": "float32"}, dtype, element, emit, requires="vfp", numbers=(scale,), ordered=False, suffix=suffix
    )


def rounded_codes() -> list[str]:
    """Round s0 to s3, halves away from zero, to the bytes of %[a], saturated; clobbers %[b], %[c], %[d].

    Needs %[one] = 1 and %[offset] = 1 + 2 * (the value of zero) in both halves of a register.
    """
    return [
        *[f"vcvt.s16.f32 {s}, {s}, #1" for s in _FLOATS],
        "vmov %[a], %[b], s0, s1",
        "vmov %[c], %[d], s2, s3",
        "pkhbt %[a], %[a], %[c], lsl #16",
        "pkhbt %[b], %[b], %[d], lsl #16",
        "and %[c], %[one], %[a], lsr #15",
        "and %[d], %[one], %[b], lsr #15",
        "qsub16 %[a], %[a], %[c]",
        "qsub16 %[b], %[b], %[d]",
        "shadd16 %[a], %[a], %[offset]",
        "shadd16 %[b], %[b], %[offset]",
        "usat16 %[a], #8, %[a]",
        "usat16 %[b], #8, %[b]",
        "orr %[a], %[a], %[b], lsl #8",
    ]


@cache
def dequantize_8(dtype: str, zero_point: int) -> TensorIntrin:
    """out[i] = (x[i] - zp) * scale for `count` elements, a multiple of NUMBERS_A_TURN; dtype int8 or uint8.

    Operands: x, out float32[count], scale, count.
    """
    scale, extend, minus = Var("scale", "float32"), "sxtab16" if dtype == "int8" else "uxtab16", -zero_point & 0xFFFF
    step = [
        "ldr %[a], [%[x]], #4",
        f"{extend} %[b], %[zp], %[a], ror #8",
        f"{extend} %[a], %[zp], %[a]",
        "vmov s0, s1, %[a], %[b]",
        "lsr %[a], %[a], #16",
        "lsr %[b], %[b], #16",
        "vmov s2, s3, %[a], %[b]",
        *[f"vcvt.f32.s16 {s}, {s}, #0" for s in _FLOATS],
        *[f"vmul.f32 {s}, {s}, %[scale]" for s in _FLOATS],
        "vstmia %[out]!, {s0-s3}",
    ]

    def element(_b: IRBuilder, x: Expr) -> Expr:
        return cast("float32", cast("int32", x) - zero_point) * scale

    def emit(operands: Operands) -> BlockText:
        return _stream_floats(operands, step, "ab", {"zp": f"{minus | minus << 16:#x}u"})

    name, suffix = f"arm_dsp.dequantize_8_{dtype}", f"_zp{zero_point}"
    return element_block(
        name, {"x": dtype}, "float32", element, emit, requires="vfp", numbers=(scale,), ordered=False, suffix=suffix
    )


def _plan_floats(data: TensorType, result: TensorType, attrs: QuantizeAttrs | DequantizeAttrs) -> Flat | None:
    """Plan QUANTIZE or DEQUANTIZE between float32 and bytes, without a clamp tighter than the type."""
    if isinstance(attrs, QuantizeAttrs):
        if result.dtype not in ("int8", "uint8") or (attrs.lo, attrs.hi) != int_range(result.dtype):
            return None
        block, step = quantize_8(result.dtype, attrs.zero_point, reciprocal=is_power_of_two(attrs.scale)), 48
    elif data.dtype not in ("int8", "uint8"):
        return None
    else:
        block, step = dequantize_8(data.dtype, attrs.zero_point), 32
    iterations, left = divmod(result.size, NUMBERS_A_TURN)
    cost = iterations * (step + 2) + 20 * left + 16, 4 * step + 40 + 60 * left
    return Flat(block, cost, (imm(attrs.scale, "float32"),), per_iteration=NUMBERS_A_TURN)


def is_power_of_two(scale: float) -> bool:
    """Whether the scale and its reciprocal are powers of two that float32 can represent."""
    fraction, exponent = frexp(scale)
    return fraction == 0.5 and abs(exponent) <= 120


for _op in ("quantize", "dequantize"):
    register_flat(f"arm_dsp.{_op}", f"qnn.{_op}", _plan_floats, needs=["vfp"], least=NUMBERS_A_TURN, plevel=25)
