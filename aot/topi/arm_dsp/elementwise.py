"""Element-wise operators with DSP instructions: ADD and MUL of bytes, tables, QUANTIZE from float32 and DEQUANTIZE to float32,
alone or as the epilogue of a layer.

All handle four bytes per word, with results packed back into words; each section says how.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from math import frexp, prod
from typing import Literal

import numpy as np

from aot.ir.type import TensorType
from aot.op.common.te_rule import F_TE, TeContext
from aot.op.qnn.arithmetic import MultiplyAttrs
from aot.op.qnn.lut import LutAttrs
from aot.op.qnn.quantize import QUANTIZE, RANGE, DequantizeAttrs, QuantizeAttrs, RequantizeAttrs, tir_quantize
from aot.relay.expr import Var as RelayVar
from aot.relay.expr import tensor_type
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range
from aot.target.target import Target
from aot.te.tensor import TensorFn, elements_of, tensor_fn
from aot.tir.buffer import UNKNOWN_EXTENT, Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, Var, binop, cast, imm, maximum, minimum, select
from aot.tir.function import FuncAttrs
from aot.tir.intrin import BlockText, TensorIntrin
from aot.tir.stmt import Region
from aot.topi.intrin.asm_text import Operands, Repeat, asm, block_of
from aot.topi.intrin.scalar import splat
from aot.topi.layer.elementwise import (
    CODES,
    AddKernel,
    Factors,
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
from aot.topi.layer.fused import FusedLayer, LayerIo, epilogue_each, residual_factors, table_of
from aot.topi.layer.requant import HighMultiply, plan_high_multiply
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl, register_planned

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
        *("1:", "ldr %[p], [%[x]], #4", "ldr %[q], [%[y]], #4"),
        *("and %[r], %[mask], %[p], lsl #8", "and %[s], %[mask], %[q], lsl #8"),
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


ADD = AddKernel(
    "dsp", LEAST, lambda limits: f"arm_dsp.add_4_{limits.name}", _emit_add, _add_cost, lambda _length: LANES, repeated=False
)
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
    x, y = rows.operands[plan.first], rows.operands[1 - plan.first]
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

    pair = [fixed(v, places[kind]) for v, kind in zip(rows.operands, rows.runs.kinds, strict=True)]
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
    step = [f"ldmia %[x]!, {{{words}}}"]
    a, b, c, t = (f"%[{n}]" for n in "abct")
    for r in _WORDS:
        step += [f"uxtb {a}, {r}", f"uxtb {b}, {r}, ror #8", f"uxtb {c}, {r}, ror #16", f"lsr {r}, {r}, #24"]
        step += [f"ldrb {v}, [{t}, {v}]" for v in (a, b, c, r)]
        step += [f"orr {a}, {a}, {b}, lsl #8", f"orr {a}, {a}, {c}, lsl #16", f"orr {r}, {a}, {r}, lsl #24"]
    step.append(f"stmia %[o]!, {{{words}}}")
    text: list[str | Repeat] = ["1:", Repeat(CODES_A_TURN // 16, step), f"subs %[n], %[n], #{CODES_A_TURN}", "bne 1b"]

    def emit(operands: Operands) -> BlockText:
        return asm(operands, text, "x *t=table >o=out", {}, counter="n=count", temporaries="abc", clobbers=_WORDS)

    return element_block(
        "arm_dsp.lut_words", {"x": "int8"}, "int8", code_of_table, emit, requires="thumb2", table="int8", align=(4, 4)
    )


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
        *("vmov %[a], %[b], s0, s1", "vmov %[c], %[d], s2, s3"),
        *("pkhbt %[a], %[a], %[c], lsl #16", "pkhbt %[b], %[b], %[d], lsl #16"),
        *("and %[c], %[one], %[a], lsr #15", "and %[d], %[one], %[b], lsr #15"),
        *("qsub16 %[a], %[a], %[c]", "qsub16 %[b], %[b], %[d]"),
        *("shadd16 %[a], %[a], %[offset]", "shadd16 %[b], %[b], %[offset]"),
        *("usat16 %[a], #8, %[a]", "usat16 %[b], #8, %[b]", "orr %[a], %[a], %[b], lsl #8"),
    ]


@cache
def dequantize_8(dtype: str, zero_point: int) -> TensorIntrin:
    """out[i] = (x[i] - zp) * scale for `count` elements, a multiple of NUMBERS_A_TURN; dtype int8 or uint8.

    Operands: x, out float32[count], scale, count.
    """
    scale, extend, minus = Var("scale", "float32"), "sxtab16" if dtype == "int8" else "uxtab16", -zero_point & 0xFFFF
    step = [
        *("ldr %[a], [%[x]], #4", f"{extend} %[b], %[zp], %[a], ror #8", f"{extend} %[a], %[zp], %[a]"),
        *("vmov s0, s1, %[a], %[b]", "lsr %[a], %[a], #16", "lsr %[b], %[b], #16", "vmov s2, s3, %[a], %[b]"),
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

# ---- DYNAMIC_RANGE and DYNAMIC_QUANTIZE: the range of each batch of float32 data, and the quantised values from its factor ----
#
# The range is found with integer compares: floats other than NaN compare like integers if their signs agree.  The largest is the
# largest signed integer from 0 on, the smallest is the largest unsigned integer from -0 on.
#
# Quantised values (symmetric quantisation): the reference adds 0.5 to the magnitude in float32 and truncates.  That differs from
# rounding halves away from zero for one number only, 0.5 - 2^-25, for which the sum rounds to 1.  A VMLA with EPSILON, a little
# over 2^-25, moves that number to 0.5, and no other number up to 127.5 across a half, because there p * EPSILON is below half of
# the last place of p.  Then VCVT truncates to 16 bits with one fraction bit, and the halving is done as in `quantize_8`.

LARGEST_CODE = 127
INFINITE_BITS = 0x7F800000
EPSILON = 2.0**-25 * (1 + 2.0**-22)
SIGN = 1 << 31


@cache
def float_range() -> TensorIntrin:
    """ends[0] = max(ends[0], x[i] as int32), ends[1] = max(ends[1], x[i] as uint32) for `count` numbers, whole iterations.

    Operands: x float32[count]; ends uint32[2] in registers; count.
    """
    count = Var("count")
    b = IRBuilder("float_range")
    x = b.input("x", (UNKNOWN_EXTENT,), "float32", align=4)
    ends = b.output("ends", (2,), "uint32")
    with b.for_("i", count) as i:
        signed, unsigned = b.let("signed", x.load("int32", i)), b.let("unsigned", x.load("uint32", i))
        b.store(ends, 0, cast("uint32", maximum(cast("int32", ends[0]), signed)))
        b.store(ends, 1, maximum(ends[1], unsigned))
    registers = ("r4", "r5", "r6", "r8")
    text: list[str | Repeat] = ["1:"]
    for _ in range(NUMBERS_A_TURN // len(registers)):
        text.append(f"ldmia %[x]!, {{{', '.join(registers)}}}")
        for r in registers:
            text += [f"cmp {r}, %[high]", "it gt", f"movgt %[high], {r}", f"cmp {r}, %[low]", "it hi", f"movhi %[low], {r}"]
    text += [f"subs %[n], %[n], #{NUMBERS_A_TURN}", "bne 1b"]

    def emit(operands: Operands) -> BlockText:
        ends = [f'[{n}] "+r"({s})' for n, s in zip(("high", "low"), operands["ends"].scalars, strict=True)]
        return asm(operands, text, "x", counter="n=count", last=ends, clobbers=registers, kind="+")

    return block_of(b, "arm_dsp", emit, count, requires="thumb2")


@cache
def quantize_symmetric() -> TensorIntrin:
    """out[i] = the quantised value of x[i] * factor within +-127, for `count` numbers, a multiple of NUMBERS_A_TURN; 0 for NaN.

    Operands: x float32[count], out int8[count], sum float32[1] in a register, factor, count.  Products of neighbours are added to
    `sum`, which becomes infinite or NaN if one of the numbers is.
    """
    factor, count = Var("factor", "float32"), Var("count")
    b = IRBuilder("quantize_symmetric")
    x = b.input("x", (UNKNOWN_EXTENT,), "float32", align=4)
    out = b.output("out", (UNKNOWN_EXTENT,), "int8")
    total = b.output("sum", (1,), "float32")
    far, zero = imm(1000.0, "float32"), imm(0.0, "float32")
    with b.for_("i", count // 2) as i:
        pair = []
        for p in range(2):
            value = b.let("value", x[2 * i + p] * factor)
            value = b.let("value", value + value * imm(EPSILON, "float32"))
            pair.append(value)
            number = select(binop("==", value, value), value, zero)
            bounded = b.let("bounded", select(value >= far, far, select(value <= zero - far, zero - far, number)))
            halves = b.let("halves", cast("int32", bounded * imm(2.0, "float32")))
            code = (halves + select(halves < 0, imm(0), imm(1))) >> 1
            b.store(out, 2 * i + p, cast("int8", maximum(imm(-LARGEST_CODE), minimum(code, imm(LARGEST_CODE)))))
        b.store(total, 0, total[0] + pair[0] * pair[1])
    offset = 1 + 2 * LARGEST_CODE  # from 0: 0 to 254, then 1 more except for 255, so that the lowest byte is -127
    step = [
        "vldmia %[x]!, {s0-s3}",
        *[f"vmul.f32 {s}, {s}, %[factor]" for s in _FLOATS],
        *[f"vmla.f32 {s}, {s}, %[epsilon]" for s in _FLOATS],
        *("vmla.f32 %[sum], s0, s1", "vmla.f32 %[sum], s2, s3"),
        *rounded_codes(),
        *("uqadd8 %[a], %[a], %[ones]", "eor %[a], %[a], #0x80808080", "str %[a], [%[out]], #4"),
    ]
    text: list[str | Repeat] = ["1:", Repeat(NUMBERS_A_TURN // 4, step), f"subs %[n], %[n], #{NUMBERS_A_TURN}", "bne 1b"]
    ins = {"factor:t": "aot_factor", "epsilon:t": "aot_epsilon", "one": "0x00010001u", "ones": "0x01010101u"}
    ins["offset"] = f"{offset | offset << 16:#x}u"

    def emit(operands: Operands) -> BlockText:
        floats = {"factor": operands["factor"].value, "epsilon": f"{float(EPSILON).hex()}f"}
        before, last = [f"const float aot_{n} = {v};" for n, v in floats.items()], [f'[sum] "+t"({operands["sum"].scalars[0]})']
        return asm(
            operands, text, "x >out", ins, counter="n=count", temporaries="abcd", clobbers=_FLOATS, kind="+",
            before=before, last=last,
        )  # fmt: skip

    return block_of(b, "arm_dsp", emit, factor, count, requires="vfp")


def _accepts_batches(group: Group, target: Target, *, feature: str) -> bool:
    """Accept one call with batches of whole iterations, as the reference handles a remainder differently."""
    anchor = group.anchor
    if group.followers or anchor is not group.result or not target.has("dsp") or not target.has(feature):
        return False
    if not all(isinstance(a, RelayVar) for a in anchor.args) or (anchor.attrs is not None and anchor.attrs.asymmetric):
        return False
    size = prod(tensor_type(anchor.args[0]).shape[1:])
    return size > 0 and size % NUMBERS_A_TURN == 0


def lower_range(group: Group, _target: Target, name: str) -> Lowered:
    """Lower dynamic_range: per batch one block of integer compares, or float compares if there is a NaN."""
    anchor = group.anchor
    data = tensor_type(anchor.args[0])
    batches, size = data.shape[0], prod(data.shape[1:])
    b = IRBuilder(name)
    x = b.input("data", (batches, size), "float32", align=4)
    out = b.output("out", (batches, 2), "float32", align=4)
    with b.for_("m", batches) as m:
        ends = b.local("ends", (2,), "uint32")
        b.store(ends, 0, imm(0, "uint32"))
        b.store(ends, 1, imm(SIGN, "uint32"))
        b.block(float_range(), region(x, m * size), ends, imm(size))
        below = b.let("below", binop("^", ends[1], imm(SIGN, "uint32")))
        infinite = imm(INFINITE_BITS, "uint32")
        with b.if_(binop("||", ends[0] > infinite, below > infinite)):
            # NaN is left out, as every comparison with it is false
            found, zero = b.local("found", (2,), "float32", init=imm(0.0, "float32")), imm(0.0, "float32")
            with b.for_("i", size) as i:
                for side, value in enumerate((b.let("below", zero - x[m, i]), b.let("above", x[m, i]))):
                    b.store(found, side, select(value > found[side], value, found[side]))
            for side in range(2):
                b.store(out, (m, imm(side)), found[side])
        with b.else_():
            b.store_as(out, "uint32", m * 2, below)
            b.store_as(out, "uint32", m * 2 + 1, ends[0])
    func = b.finish(FuncAttrs(kernel="arm_dsp.dynamic_range", span=anchor.span))
    return Lowered(func, {}, batches * (size // 8 * 52 + 24) + 10, 340)


def lower_quantize(group: Group, _target: Target, name: str) -> Lowered:
    """Lower dynamic_quantize: per batch one block; batches with infinity or NaN are done again by the operator's rule."""
    anchor = group.anchor
    data = tensor_type(anchor.args[0])
    batches, size = data.shape[0], prod(data.shape[1:])
    b = IRBuilder(name)
    buffers: dict[int, Buffer] = {}
    for var in group.params:
        shape = (batches, size) if var is anchor.args[0] else (batches, 3)
        buffers[id(var)] = b.input("data" if var is anchor.args[0] else "parameters", shape, "float32", align=4)
    x, parameters = (buffers[id(a)] for a in anchor.args)
    out = b.output("out", (batches, size), "int8")
    tensors: list[TensorFn] = [elements_of(x), elements_of(parameters)]
    rule = F_TE.get(QUANTIZE)(TeContext(b), tensors, anchor.attrs, TensorType((batches, size), "int8"))
    with b.for_("m", batches) as m:
        factor = b.let("factor", parameters[m, 1])
        total = b.local("sum", (1,), "float32", init=imm(0.0, "float32"))
        b.block(quantize_symmetric(), region(x, m * size), region(out, m * size), total, factor, imm(size))
        nothing: Expr = total[0] - total[0]  # NaN unless the sum is finite
        with b.if_(binop("!=", nothing, nothing)), b.for_("i", size) as i:
            b.store(out, (m, i), rule.at(b, (m, i)))
    func = b.finish(FuncAttrs(kernel="arm_dsp.dynamic_quantize", span=anchor.span))
    return Lowered(func, {}, batches * (size // 8 * 66 + 30) + 10, 380)


for _name, _op, _feature, _lower in (
    ("arm_dsp.dynamic_range", RANGE, "thumb2", lower_range),
    ("arm_dsp.dynamic_quantize", QUANTIZE, "vfp", lower_quantize),
):
    register_impl(OpImplementation(_name, _op, partial(_accepts_batches, feature=_feature), _lower, plevel=25))

# ---- the epilogue of a layer, over stretches of results: a kernel keeps one iteration's results in scratch memory first ----
#
# A residual ADD handles four bytes at a time.  The runs are short, so the result may still overwrite the other operand front to
# back.

RUN = 25
"""Instructions around a block of assembly."""

FACTORS_EACH, DEQUANTIZE_EACH = 5.6, 4.0
"""Instructions per element in such a block (from counts under QEMU)."""

CLAMP_EACH = 0.75
"""Extra instructions per element if the ADD has limits other than int8's."""

KEPT = 3
"""Instructions per element that is read back from scratch memory."""


class EpilogueRun:
    """Buffers `size` consecutive results: `store` each, then `finish`; `each`: instructions of the epilogue per element
    (`epilogue_each`).

    Kernels whose assembly needs all registers use this for every epilogue: after such a block GCC has no registers left for the
    epilogue's parameters, and with some instruction orders rejects the block.
    """

    def __init__(self, b: IRBuilder, io: LayerIo, plan: Factors | DequantizeAttrs | None, *, size: int, each: int) -> None:
        self._b, self._io, self._plan, self._size, self._each = b, io, plan, size, each
        self._results: Buffer = b.scratch("results", (size,), "int8")

    @property
    def instructions(self) -> float:
        """Instructions of one run, beyond those of the kernel without an epilogue."""
        whole = self._whole
        block = DEQUANTIZE_EACH if isinstance(self._plan, DequantizeAttrs) else FACTORS_EACH
        if isinstance(self._plan, Factors) and self._plan.clamped:
            block += CLAMP_EACH
        return bool(whole) * RUN + whole * block + (self._size - whole) * (KEPT + self._each)

    @property
    def code(self) -> int:
        """Bytes of code."""
        return 250 if self._plan is None else 160

    @property
    def _whole(self) -> int:
        """Elements that the block of assembly handles."""
        lanes = NUMBERS_A_TURN if isinstance(self._plan, DequantizeAttrs) else LANES
        return 0 if self._plan is None else self._size - self._size % lanes

    def store(self, index: Expr, value: Expr) -> None:
        """Store a requantised value; `index` counts from the start of the run."""
        self._b.store(self._results, index, value)

    def finish(self, first: Expr) -> None:
        """Run the epilogue over the buffered results; `first` is the output index of the first one."""
        b, io = self._b, self._io
        done = self._block(first)
        unroll = max(u for u in (4, 3, 2, 1) if (self._size - done) % u == 0)
        if done < self._size:
            with b.for_("i", self._size, start=done, step=unroll) as i:
                for u in range(unroll):
                    value = b.let("result", cast("int32", self._results.load("int8", i + u)))
                    io.store((first + i + u,), value)

    def _block(self, first: Expr) -> int:
        """Emit the block of assembly; return the number of elements that it handles."""
        whole = self._whole
        if self._plan is None or not whole:
            return 0
        b, io, f = self._b, self._io, self._plan
        if isinstance(f, DequantizeAttrs):
            block = dequantize_8("int8", f.zero_point)
            b.block(block, self._results, region(io.out, first), imm(f.scale, "float32"), imm(whole))
        else:
            operands = self._results, region(io.operands[0], first), region(io.out, first)
            b.block(ADD.block(f, whole), *operands, *f.numbers, imm(whole))
        return whole


def epilogue_run(b: IRBuilder, io: LayerIo, layer: FusedLayer, *, target: Target, size: int) -> EpilogueRun | None:
    """Return the buffer for a layer's epilogue; None without an epilogue, or if the epilogue is a table (one load per result)."""
    if not layer.epilogue or table_of(layer) is not None:
        return None
    attrs = layer.epilogue[0].attrs
    plan: Factors | DequantizeAttrs | None = residual_factors(layer, target) if len(io.operands) == 1 else None
    if len(layer.epilogue) == 1 and isinstance(attrs, DequantizeAttrs) and target.has("vfp") and layer.requant.dtype == "int8":
        plan = attrs
    return EpilogueRun(b, io, plan, size=size, each=epilogue_each(layer))


def run_instructions(layer: FusedLayer, run: EpilogueRun | None, *, size: int) -> float:
    """Return the instructions of the epilogue for `size` elements; with an EpilogueRun these are one run."""
    return epilogue_each(layer) * size if run is None else run.instructions
