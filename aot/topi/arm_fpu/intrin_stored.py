"""One pixel by up to eight channels, each weight widened where it is used: float16 by VCVT, integers by VCVT and their scales.

For layers of a few pixels, where widening the weights for all of them at once would only move them through memory.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from aot.support.dataclass import dataclass
from aot.tir.buffer import UNKNOWN_EXTENT
from aot.tir.builder import IRBuilder
from aot.tir.expr import imm
from aot.tir.intrin import TensorIntrin
from aot.topi.arm_fpu.finish import Text, vector
from aot.topi.arm_fpu.intrin import DotForm, emit, finish, run_length, scalars
from aot.topi.arm_fpu.rows import RowForm

_SCALE, _DATA = 16, 24


@dataclass(frozen=True, slots=True)
class StoredForm(DotForm):
    """As DotForm, of one pixel and one run, with rows of weights as flash has them; zero points take turns with the data."""

    kind: str = "float16"
    zero: bool = False

    @property
    def row(self) -> RowForm:
        return RowForm(self.kind, self.channels, self.zero)

    @property
    def title(self) -> str:
        return f"dot_{self.kind}" + "_zero" * self.zero

    @property
    def pointers(self) -> tuple[str, ...]:
        return ("x0", "w", *(["s"] if self.row.parameters else []), "bias")

    @property
    def temporaries(self) -> tuple[str, ...]:
        return ("t", "u", "a", "b") if self.row.parameters else ("t", "u")

    @property
    def together(self) -> int:
        return 1 if self.zero else 4

    def taps(self, count: int, *, first: bool = False) -> list[str]:
        text: list[str] = []
        for done in range(0, count, self.together):
            size = min(self.together, count - done)
            data = [f"vldmia %[x0]!, {vector(_DATA, size)}"]
            text += [] if self.zero else data
            for k in range(size):
                zeros = [str(line) for line in self.row.load_zeros(_DATA)]
                text += zeros + self.row.load(self.free, scale=_SCALE, zero=_DATA)
                text += (data if self.zero else []) + self.products(self.free, k, first=first and done + k == 0)
        return text

    def text(self) -> Text:
        return [*self.row.load_scales(_SCALE), *DotForm.text(self)]


@cache
def stored_dot(form: StoredForm) -> TensorIntrin:
    """out[c] = clamp(sum over taps of x0 * w[.., c] + bias[c]) for c < channels.

    Operands: x0 float32; w, the rows, as `form.row.dtype`; of integers s float32, scales and zero points; bias; out; of a loop
    trips.
    """
    b = IRBuilder(form.name)
    given, row = scalars(form), form.row
    x = b.input("x0", (UNKNOWN_EXTENT,), "float32", align=4)
    w = b.input("w", (UNKNOWN_EXTENT,), row.dtype, align=4)
    s = b.input("s", (UNKNOWN_EXTENT,), "float32", align=4) if row.parameters else None
    bias = b.input("bias", (UNKNOWN_EXTENT,), "float32", align=4)
    out = b.output("out", (UNKNOWN_EXTENT,), "float32", align=4)
    acc = b.local("acc", (1, form.channels), "float32", init=imm(0.0, "float32"))
    with b.for_("k", run_length(form, given)) as k:
        value = b.let("x", x[k])
        for c in range(form.channels):
            b.store(acc, (0, c), acc[0, c] + value * row.value(w, s, k, c))
    finish(b, form, acc, bias, out, given)
    desc = replace(b.finish(), scalars=tuple(given.values()))
    return TensorIntrin(f"arm_fpu.{form.name}", desc, lambda ops: emit(form, ops), requires="vfp")
