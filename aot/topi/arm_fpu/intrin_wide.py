"""One pixel by up to sixteen channels, two or four by one: a number that is used once gives its register to its product.

Loads of more numbers at once take less: a load of N takes 1 + N cycles.
"""

from __future__ import annotations

from aot.support.dataclass import dataclass
from aot.topi.arm_fpu.finish import Text, vector
from aot.topi.arm_fpu.intrin import DotForm
from aot.topi.intrin.asm_text import Repeat

MOST_CHANNELS = 16
_FLOATS = 32
_FEW = 4
"""Channels up to which more data is loaded at once, as it is used less often."""


@dataclass(frozen=True, slots=True)
class WideForm(DotForm):
    """As DotForm, of one pixel and without VMLA."""

    @property
    def title(self) -> str:
        return "wide"

    @property
    def free(self) -> int:
        return self.channels

    @property
    def together(self) -> int:
        return 8 if self.channels <= _FEW else 4

    def run(self, *, first: bool = False) -> Text:
        if not self.loop:
            return [*self.taps(self.unroll + self.rest, first=first)]
        whole, rest = divmod(self.unroll, self.together)
        body: Text = [Repeat(whole, self.taps(self.together)), *self.taps(rest)]
        return ["mov %[t], %[trips]", "2:", *body, "subs %[t], %[t], #1", "bne 2b", *self.taps(self.rest)]

    def taps(self, count: int, *, first: bool = False) -> list[str]:
        text: list[str] = []
        for done in range(0, count, self.together):
            size = min(self.together, count - done)
            text += [f"vldmia %[x0]!, {vector(_FLOATS - self.together, size)}"]
            text += self._stream(size, first=first and done == 0)
        return text

    def _stream(self, taps: int, *, first: bool) -> list[str]:
        """The products of taps whose data is loaded, by as many weights as there are registers."""
        text: list[str] = []
        data, most = _FLOATS - self.together, _FLOATS - self.together - self.channels
        total = taps * self.channels
        for start in range(0, total, most):
            size = min(most, total - start)
            text.append(f"vldmia %[w]!, {vector(self.free, size)}")
            waiting: list[str] = []
            for i in range(size):
                k, c = divmod(start + i, self.channels)
                into = c if first and k == 0 else self.free + i
                text.append(f"vmul.f32 s{into}, s{self.free + i}, s{data + k}")
                waiting += [] if into == c else [f"vadd.f32 s{c}, s{c}, s{into}"]
                if len(waiting) > 2:
                    text.append(waiting.pop(0))
            text += waiting
        return text


@dataclass(frozen=True, slots=True)
class NarrowForm(WideForm):
    """As DotForm, of two pixels by one channel and without VMLA: each number of the data is used once."""

    @property
    def title(self) -> str:
        return "narrow"

    @property
    def free(self) -> int:
        return 2

    @property
    def together(self) -> int:
        return 8

    def taps(self, count: int, *, first: bool = False) -> list[str]:
        text: list[str] = []
        weights, data = 2, (2 + self.together, 2 + 2 * self.together)
        for done in range(0, count, self.together):
            size = min(self.together, count - done)
            text += [f"vldmia %[x{p}]!, {vector(x, size)}" for p, x in enumerate(data)]
            text.append(f"vldmia %[w]!, {vector(weights, size)}")
            waiting: list[str] = []
            for k in range(size):
                for p, x in enumerate(data):
                    into = p if first and done + k == 0 else x + k
                    text.append(f"vmul.f32 s{into}, s{x + k}, s{weights + k}")
                    waiting += [] if into == p else [f"vadd.f32 s{p}, s{p}, s{into}"]
                    if len(waiting) > 2:
                        text.append(waiting.pop(0))
            text += waiting
        return text


@dataclass(frozen=True, slots=True)
class ManyForm(WideForm):
    """As DotForm, of four neighbouring pixels by the only channel, and without VMLA: a load of weights is for all pixels."""

    @property
    def title(self) -> str:
        return "many"

    @property
    def stored(self) -> tuple[int, int]:
        return 1, self.pixels

    @property
    def free(self) -> int:
        return self.pixels

    @property
    def together(self) -> int:
        most = (_FLOATS - self.pixels) // 2
        return next((n for n in range(most, most // 2, -1) if self.unroll % n == 0), most)

    def taps(self, count: int, *, first: bool = False) -> list[str]:
        text: list[str] = []
        for done in range(0, count, self.together):
            size = min(self.together, count - done)
            text.append(f"vldmia %[w]!, {vector(self.free, size)}")
            for p in range(self.pixels):
                text += self._pixel(p, size, first=first and done == 0)
        return text

    def _pixel(self, p: int, taps: int, *, first: bool) -> list[str]:
        data = self.free + self.together
        text, waiting = [f"vldmia %[x{p}]!, {vector(data, taps)}"], []
        for k in range(taps):
            into = p if first and k == 0 else data + k
            text.append(f"vmul.f32 s{into}, s{data + k}, s{self.free + k}")
            waiting += [] if into == p else [f"vadd.f32 s{p}, s{p}, s{into}"]
            if len(waiting) > 2:
                text.append(waiting.pop(0))
        return text + waiting


def unroll_many(run: int, otherwise: int) -> int:
    """Taps of a loop's turn with ManyForm: such that its loads are large."""
    return next((u for u in (42, 28, 36, 24, 40, 20, 32, 16) if run % u == 0), otherwise)
