"""ADD, SUB, MUL and RELU of float32, four elements a turn, with the clamp of an activation; tails are predicated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from aot.support.dataclass import dataclass
from aot.tir.buffer import UNKNOWN_EXTENT
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, Var, binop, imm
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.arm_fpu.finish import Clamp, bits_of
from aot.topi.arm_mve.float32.intrin import LANES
from aot.topi.intrin.asm_text import AsmBlock, count_instructions

OPERATORS = {"add": ("+", "vadd.f32"), "subtract": ("-", "vsub.f32"), "multiply": ("*", "vmul.f32")}
"""Operator -> how TIR writes it, and the instruction."""


@dataclass(frozen=True, slots=True)
class ElementForm:
    """`op` of OPERATORS, or relu, which has one operand; `ones` tells of each operand whether it is one number for all."""

    op: str
    ones: tuple[bool, ...]
    clamp: Clamp

    @property
    def name(self) -> str:
        return f"{self.op}_float" + "".join("_one" if one else "_all" for one in self.ones) + self.clamp.name

    def before(self) -> list[str]:
        """What does not change: numbers that are the same for all elements, bounds."""
        text = []
        for i, one in enumerate(self.ones):
            text += [f"ldr %[t], [%[x{i}]]", f"vdup.32 q{i}, %[t]"] if one else []
        for q, bound in (("q3", self.clamp.lo), ("q4", self.clamp.hi)):
            if bound is not None:
                bits = bits_of(bound)
                text += [f"movw %[t], #{bits & 0xFFFF}", f"movt %[t], #{bits >> 16}", f"vdup.32 {q}, %[t]"]
        return text

    def turn(self) -> list[str]:
        """Four elements; comparisons are false of a NaN, which stays."""
        text = [f"vldrw.u32 q{i}, [%[x{i}]], #{4 * LANES}" for i, one in enumerate(self.ones) if not one]
        result = "q2" if self.op in OPERATORS else "q0"
        text += [f"{OPERATORS[self.op][1]} q2, q0, q1"] if self.op in OPERATORS else []
        text += [f"vpt.f32 gt, q3, {result}", f"vmovt {result}, q3"] if self.clamp.lo is not None else []
        text += [f"vpt.f32 gt, {result}, q4", f"vmovt {result}, q4"] if self.clamp.hi is not None else []
        return [*text, f"vstrw.32 {result}, [%[out]], #{4 * LANES}"]

    def instructions(self, count: int) -> int:
        """Executed by one block."""
        return -(-count // LANES) * (count_instructions(self.turn()) + 1) + len(self.before()) + 6

    @property
    def code(self) -> int:
        """Bytes."""
        return 4 * (len(self.turn()) + len(self.before()) + 8)


@cache
def elementwise(form: ElementForm) -> TensorIntrin:
    """out[i] = clamp(x0[i] op x1[i]) of `count` elements, at least one.

    Operands: x0 and, but of relu, x1 float32, of which one that is a number for all elements is read at 0 only; out (which may be
    either of them); count.
    """
    count = Var("count")
    b = IRBuilder(form.name)
    xs = [b.input(f"x{i}", (UNKNOWN_EXTENT,), "float32", align=4) for i in range(len(form.ones))]
    out = b.output("out", (UNKNOWN_EXTENT,), "float32", align=4)
    with b.for_("i", count) as i:
        values: list[Expr] = [x[imm(0) if one else i] for x, one in zip(xs, form.ones, strict=True)]
        value = binop(OPERATORS[form.op][0], *values) if form.op in OPERATORS else values[0]
        b.store(out, i, form.clamp.meaning(b, value))
    desc = replace(b.finish(), scalars=(count,))
    name = f"arm_mve.{form.name}"
    return TensorIntrin(name, desc, lambda ops: _emit(form, ops), requires="mve.fp", ordered=True)


def _emit(form: ElementForm, operands: Mapping[str, COperand]) -> BlockText:
    names = [f"x{i}" for i in range(len(form.ones))]
    return AsmBlock(
        [
            *(f"const void *aot_{n} = {operands[n].pointer};" for n in names),
            f"void *aot_out = {operands['out'].pointer};",
            "uint32_t aot_t;",
        ],
        [*form.before(), "dlstp.32 lr, %[n]", "1:", *form.turn(), "letp lr, 1b"],
        outs=[*(f'[{n}] "+&r"(aot_{n})' for n in (*names, "out")), '[t] "=&r"(aot_t)'],
        ins=[f'[n] "r"({operands["count"].value})'],
        clobbers=["lr", "q0", "q1", "q2", "q3", "q4"],
    ).emit()
