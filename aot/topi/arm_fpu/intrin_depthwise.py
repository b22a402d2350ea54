"""Depthwise windows: one or two pixels by up to eight channels, data and weights of a tap loaded side by side.

Where the next pixel's window is one tap further (`shared`), VMLA leaves the data of a tap as it is, so that the second pixel
takes from the registers what the first one needs next.  VMUL puts its products over the data, as all registers are in use.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from aot.support.dataclass import dataclass
from aot.tir.builder import IRBuilder
from aot.tir.expr import Var, imm
from aot.tir.intrin import TensorIntrin
from aot.topi.arm_fpu.finish import Text, vector
from aot.topi.arm_fpu.intrin import DotForm, buffers, emit, finish, run_length, scalars
from aot.topi.intrin.asm_text import Repeat

_DATA = 24


@dataclass(frozen=True, slots=True)
class DepthwiseForm(DotForm):
    """As DotForm, a channel of data for each channel of results; `shared` only with two pixels and `fused`."""

    shared: bool = False

    @property
    def title(self) -> str:
        return "depthwise_shared" if self.shared else "depthwise"

    @property
    def sources(self) -> int:
        return 1 if self.shared else self.pixels

    def run(self, *, first: bool = False) -> Text:
        data: Text = [f"vldmia %[x0], {vector(_DATA, self.channels)}"] if self.shared else []
        if not self.loop:
            return [*data, *self.taps(self.unroll + self.rest, first=first)]
        body: Text = [Repeat(self.unroll, self.taps(1))]
        return ["mov %[t], %[trips]", *data, "2:", *body, "subs %[t], %[t], #1", "bne 2b", *self.taps(self.rest)]

    def taps(self, count: int, *, first: bool = False) -> list[str]:
        return [line for k in range(count) for line in self._tap(first=first and k == 0)]

    def _tap(self, *, first: bool) -> list[str]:
        n, text = self.channels, [f"vldmia %[w]!, {vector(self.free, self.channels)}"]
        for p in range(self.pixels):
            if self.shared and p:
                text += ["add %[x0], %[x0], %[tap]", f"vldmia %[x0], {vector(_DATA, n)}"]
            elif not self.shared:
                text += [f"vldmia %[x{p}], {vector(_DATA, n)}", f"add %[x{p}], %[x{p}], %[tap]"]
            if self.fused or first:
                text += [f"{'vmul' if first else 'vmla'}.f32 s{p * n + c}, s{_DATA + c}, s{self.free + c}" for c in range(n)]
            else:
                text += [f"vmul.f32 s{_DATA + c}, s{_DATA + c}, s{self.free + c}" for c in range(n)]
                text += [f"vadd.f32 s{p * n + c}, s{p * n + c}, s{_DATA + c}" for c in range(n)]
        return text


@cache
def depthwise_dot(form: DepthwiseForm) -> TensorIntrin:
    """out[p * step + c] = clamp(sum over runs and taps of x_p[.., c] * w[.., c] + bias[c]) for p < pixels, c < channels.

    Operands as those of `dot`, and at last `tap`, the elements from the data of a tap to that of the next.  With `shared` x0
    stands for both pixels, the second one's data a tap after the first's.
    """
    b = IRBuilder(form.name)
    given = {**scalars(form), "tap": Var("tap")}
    xs, w, bias, out = buffers(b, form)
    acc = b.local("acc", (form.pixels, form.channels), "float32", init=imm(0.0, "float32"))
    taps, tap = run_length(form, given), given["tap"]
    with b.for_("r", given.get("runs", imm(1))) as r, b.for_("k", taps) as k:
        weights = r * (taps * form.channels + given.get("skip", imm(0))) + k * form.channels
        start = r * (taps * tap + given.get("gap", imm(0))) + k * tap
        for p in range(form.pixels):
            x = xs[0] if form.shared else xs[p]
            for c in range(form.channels):
                b.store(acc, (p, c), acc[p, c] + x[start + c + tap * (p if form.shared else 0)] * w[weights + c])
    finish(b, form, acc, bias, out, given)
    desc = replace(b.finish(), scalars=tuple(given.values()))
    return TensorIntrin(f"arm_fpu.{form.name}", desc, lambda ops: emit(form, ops), requires="vfp")
