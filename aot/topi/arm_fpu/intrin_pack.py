"""Copies of matrices into the order that `dot` reads: columns side by side, or rows and columns exchanged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from aot.support.dataclass import dataclass
from aot.tir.buffer import UNKNOWN_EXTENT
from aot.tir.builder import IRBuilder
from aot.tir.expr import Var
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.arm_fpu.finish import REGISTERS, Text, vector
from aot.topi.arm_fpu.intrin import waits
from aot.topi.arm_fpu.strip_form import NEAR
from aot.topi.intrin.asm_text import AsmBlock, Repeat, count_instructions

_TOGETHER = 8
"""Numbers of a load where they go to places that are apart."""


@dataclass(frozen=True, slots=True)
class ColumnsForm:
    """`channels` neighbouring columns of `unroll` rows a turn."""

    channels: int
    unroll: int

    @property
    def name(self) -> str:
        return f"columns_{self.channels}_u{self.unroll}"

    @property
    def body(self) -> Text:
        numbers = vector(0, self.channels)
        row: Text = [f"vldmia %[x], {numbers}", "add %[x], %[x], %[step]", f"vstmia %[o]!, {numbers}"]
        return [Repeat(self.unroll, row), "subs %[trips], %[trips], #1", "bne 1b"]

    def text(self) -> Text:
        return ["1:", *self.body]


@dataclass(frozen=True, slots=True)
class SpreadForm:
    """Numbers side by side to places `near` numbers from each other, or where that is None `step`; `rest` after the turns of
    `_TOGETHER`, of which there are none without `loop`.
    """

    near: int | None
    rest: int
    loop: bool

    @property
    def name(self) -> str:
        return f"spread_{'far' if self.near is None else self.near}_rest{self.rest}" + "_once" * (not self.loop)

    @property
    def body(self) -> Text:
        return [*self._numbers(_TOGETHER), "subs %[trips], %[trips], #1", "bne 1b"] if self.loop else []

    def _numbers(self, count: int) -> Text:
        text: Text = [f"vldmia %[x]!, {vector(0, count)}"]
        if self.near is None:
            return text + [line for i in range(count) for line in (f"vstr.32 s{i}, [%[o]]", "add %[o], %[o], %[step]")]
        text += [f"vstr.32 s{i}, [%[o], #{4 * self.near * i}]" for i in range(count)]
        return [*text, f"add %[o], %[o], #{4 * self.near * count}"]

    @property
    def last(self) -> Text:
        return self._numbers(self.rest) if self.rest else []

    def text(self) -> Text:
        return [*(["1:"] * self.loop), *self.body, *self.last]


def spread_form(count: int, step: int) -> SpreadForm:
    """For `count` numbers, which end up `step` apart."""
    near = 4 * step * (_TOGETHER - 1) <= NEAR
    return SpreadForm(step if near else None, count % _TOGETHER, count >= _TOGETHER)


@cache
def columns(form: ColumnsForm) -> TensorIntrin:
    """out[r * channels + c] = x[r * step + c] for r < trips * unroll, c < channels.

    Operands: x and out float32; trips; step.
    """
    b = IRBuilder(form.name)
    x = b.input("x", (UNKNOWN_EXTENT,), "float32", align=4)
    out = b.output("out", (UNKNOWN_EXTENT,), "float32", align=4)
    trips, step = Var("trips"), Var("step")
    with b.for_("r", trips * form.unroll) as r:
        for c in range(form.channels):
            b.store(out, r * form.channels + c, x[r * step + c])
    desc = replace(b.finish(), scalars=(trips, step))
    return TensorIntrin(f"arm_fpu.{form.name}", desc, lambda ops: _emit(form.text(), ops), requires="vfp")


@cache
def spread(form: SpreadForm) -> TensorIntrin:
    """out[i * step] = x[i] for i < trips * _TOGETHER + rest.

    Operands: x and out float32; of trips and step those that the form has.
    """
    b = IRBuilder(form.name)
    x = b.input("x", (UNKNOWN_EXTENT,), "float32", align=4)
    out = b.output("out", (UNKNOWN_EXTENT,), "float32", align=4)
    trips, step = Var("trips"), Var("step")
    with b.for_("i", (trips * _TOGETHER if form.loop else 0) + form.rest) as i:
        b.store(out, i * (step if form.near is None else form.near), x[i])
    scalars = (*([trips] if form.loop else []), *([step] if form.near is None else []))
    desc = replace(b.finish(), scalars=scalars)
    return TensorIntrin(f"arm_fpu.{form.name}", desc, lambda ops: _emit(form.text(), ops), requires="vfp")


def _emit(text: Text, operands: Mapping[str, COperand]) -> BlockText:
    declarations = [f"const void *aot_x = {operands['x'].pointer};", f"void *aot_o = {operands['out'].pointer};"]
    if "trips" in operands:
        declarations.append(f"int32_t aot_trips = {operands['trips'].value};")
    if "step" in operands:
        declarations.append(f"const int32_t aot_step = 4 * {operands['step'].value};")
    moved = ["x", "o", *(["trips"] if "trips" in operands else [])]
    return AsmBlock(
        declarations,
        text,
        outs=[f'[{n}] "+&r"(aot_{n})' for n in moved],
        ins=['[step] "r"(aot_step)'] if "step" in operands else [],
        clobbers=REGISTERS,
    ).emit()


def price(form: ColumnsForm | SpreadForm, trips: int) -> tuple[int, int]:
    """Instructions of one execution with what is around it, and cycles of a Cortex-M4."""
    last: Text = form.last if isinstance(form, SpreadForm) else []
    total = 10 + trips * count_instructions(form.body) + count_instructions(last)
    return total, total + 4 + trips * (waits(form.body) + 1) + waits(last)
