"""The text of a strip: one channel of a few neighbouring columns of results, from the first row of an image to the last.

The weights of the channel and the sums of the rows of results that have begun stay in registers, so that each number of the image
is loaded once a strip: a row of it goes into all sums that it is part of.  A sum takes its products row by row and column by
column, in the reference's order.

Registers: weights s0 and up, the bias, `rows_open` rows of `columns` sums, the columns of an image's row, products.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from aot.support.dataclass import dataclass
from aot.topi.arm_fpu.finish import Clamp, Text, bits_of, vector

FLOATS = 32
"""Registers of an FPU."""
NEAR, FAR = 1020, 4092
"""Bytes from a pointer that VLDR and VSTR reach, forwards and backwards, and LDR and STR, forwards."""


@dataclass(frozen=True, slots=True)
class StripForm:
    """`columns` results side by side of windows `taps` (rows, columns) with `strides`, over an image with `depth` channels; the
    results have `channels`.

    `before` and `after`: rows that the windows of the first and the last result reach beyond the image.  `left` and `right`:
    whether windows of some strip reach one column beyond it.  `outside`: columns to either side that windows of the only strip
    reach beyond it.  The loop runs over `rows_open` rows of results at a time and begins with number `start` of them; `loop` is
    False where all rows of results need some row beyond the image.
    """

    taps: tuple[int, int]
    strides: tuple[int, int]
    columns: int
    depth: int
    channels: int
    before: int
    after: int
    start: int
    loop: bool
    left: bool
    right: bool
    outside: tuple[int, int]
    clamp: Clamp

    @property
    def name(self) -> str:
        size = f"{self.taps[0]}x{self.taps[1]}_s{self.strides[0]}{self.strides[1]}_{self.columns}_depth{self.depth}"
        size += f"_channels{self.channels}" * (self.channels != self.depth)
        edges = f"_before{self.before}_after{self.after}" + "_left" * self.left + "_right" * self.right
        edges += "_outside{}_{}".format(*self.outside) * any(self.outside)
        rows = f"_start{self.start}" if self.loop else "_once"
        return f"strip_{size}{edges}{rows}{self.clamp.name}"

    @property
    def rows_open(self) -> int:
        """Rows of results that a row of the image is part of."""
        return -(-self.taps[0] // self.strides[0])

    @property
    def tail(self) -> int:
        """Rows of results that need rows below the image."""
        return -(-self.after // self.strides[0])

    @property
    def width(self) -> int:
        """Columns of the image."""
        return (self.columns - 1) * self.strides[1] + self.taps[1] - sum(self.outside)

    @property
    def origin(self) -> int:
        """The column, counted from the first one with a pointer of its own, to which that pointer points."""
        return min((self._middle - 1) // 2, NEAR // (4 * self.depth))

    @property
    def _middle(self) -> int:
        return self.width - self.left - self.right

    @property
    def _bias(self) -> int:
        return self.taps[0] * self.taps[1]

    @property
    def _data(self) -> int:
        return self._bias + 1 + self.rows_open * self.columns

    @property
    def _spare(self) -> int:
        """Registers for products."""
        return min(4, FLOATS - self._data - self.width)

    @property
    def fits(self) -> bool:
        """Whether registers and offsets suffice."""
        last = (self._middle - 1 - self.origin) * 4 * self.depth
        reach = max(last, (self.columns - 1) * 4 * self.channels)
        return self._spare >= 2 and self._middle > 0 and reach <= FAR

    def text(self) -> Text:
        """All of the strip."""
        text: Text = [*self.begin(), *(["b 3f"] if self.loop and self.start else []), *self.body(), *self.last()]
        out_of_line = [line for i in range(self.rows_open * self.loop + self.tail) for line in self._exceptions(i)]
        return [*text, *(["b 9f", *out_of_line, "9:"] if out_of_line else [])]

    def begin(self) -> Text:
        """What precedes the loop."""
        return [*self.setup(), *self.head()]

    def body(self) -> Text:
        """The loop."""
        if not self.loop:
            return []
        text: Text = ["2:"]
        for phase in range(self.rows_open):
            text += ["3:"] * (phase > 0 and phase == self.start) + self.step(phase)
        return [*text, "subs %[n], %[n], #1", "bne 2b"]

    def setup(self) -> Text:
        """Weights and bias; the pointer to them is then a temporary, and 6 for ReLU6."""
        six = bits_of(6.0)
        text: Text = [f"vldmia %[w], {vector(0, self._bias + 1)}"]
        return text + ([f"movw %[w], #{six & 0xFFFF}", f"movt %[w], #{six >> 16}"] if self._has_six else [])

    @property
    def _has_six(self) -> bool:
        return self.clamp.rectifies and self.clamp.hi == 6.0

    def head(self) -> Text:
        """The rows of the image that stand before the newest ones of the first row of results."""
        text: Text = []
        started: set[int] = set()
        for v in range(self.before, self.taps[0] - self.strides[0]):
            text += self._row(v, self.start, started)
        expected = {(self.start + d) % self.rows_open for d in range(self.rows_open) if d * self.strides[0] < self._new}
        missing = sorted(expected - started)
        if missing:
            text.append("mov %[t], #0")
        return text + [f"vmov s{self._sum(phase, p)}, %[t]" for phase in missing for p in range(self.columns)]

    @property
    def _new(self) -> int:
        """The first tap row that reads one of the newest rows."""
        return self.taps[0] - self.strides[0]

    def step(self, phase: int) -> Text:
        """A row of results: its newest rows, which also begin or continue the next ones; `phase` its sums."""
        text: Text = []
        for j in range(self.strides[0]):
            text += self._row(self._new + j, phase, None)
        return text + self._finish(phase, phase)

    def last(self) -> Text:
        """The rows of results whose windows reach below the image."""
        text: Text = []
        for i in range(self.tail):
            left = self.tail * self.strides[0] - self.after - i * self.strides[0]  # rows of the image from here on
            phase = i % self.rows_open if self.loop else (self.start + i) % self.rows_open
            for j in range(min(self.strides[0], max(0, left))):
                text += self._row(self._new + j, phase, None, live=self.tail - i)
            text += self._finish(phase, self.rows_open * self.loop + i)
        return text

    def _sum(self, phase: int, p: int) -> int:
        return self._bias + 1 + phase % self.rows_open * self.columns + p

    def inside(self, p: int) -> range:
        """The columns of taps of result `p` that are not `outside`."""
        before, first = self.outside[0], p * self.strides[1]
        return range(max(0, before - first), min(self.taps[1], before + self.width - first))

    def _loads(self) -> Text:
        """A row of the image, and the pointers to the next."""
        text: Text = []
        for c in range(self.width):
            into = f"s{self._data + c}"
            if (self.left and c == 0) or (self.right and c == self.width - 1):
                text.append(f"vldr.32 {into}, [%[{'l' if self.left and c == 0 else 'r'}]]")
                continue
            offset = (c - self.left - self.origin) * 4 * self.depth
            if offset <= NEAR:
                text.append(f"vldr.32 {into}, [%[x], #{offset}]")
            else:
                text += [f"ldr %[t], [%[x], #{offset}]", f"vmov {into}, %[t]"]
        moved = [("x", "row"), *([("l", "lrow")] * self.left), *([("r", "rrow")] * self.right)]
        return text + [f"add %[{p}], %[{p}], %[{step}]" for p, step in moved]

    def _row(self, ky: int, phase: int, started: set[int] | None, *, live: int | None = None) -> Text:
        """A row of the image, which tap row `ky` of the sums `phase` reads and further rows of results above it.

        `started`: sums that have begun, None where all have but those of tap row 0; `live`: rows of results from `phase` on.
        """
        reach = min(ky // self.strides[0] + 1, self.rows_open if live is None else live)
        targets = [(d, ky - d * self.strides[0]) for d in range(reach)]
        begun = {d: tap > 0 if started is None else (phase + d) % self.rows_open in started for d, tap in targets}
        inside = [self.inside(p) for p in range(self.columns)]
        first = [columns[0] for columns in inside]
        data = self._data - self.outside[0]
        terms = [
            (self._sum(phase + d, p), tap * self.taps[1] + kx, data + p * self.strides[1] + kx, kx == first[p] and not begun[d])
            for kx in range(self.taps[1])
            for d, tap in targets
            for p in range(self.columns)
            if kx in inside[p]
        ]
        if started is not None:
            started.update((phase + d) % self.rows_open for d, _ in targets)
        return self._loads() + self._products(terms)

    def _products(self, terms: Sequence[tuple[int, int, int, bool]]) -> Text:
        """A product waits for others before it is added."""
        text: Text = []
        waiting: list[str] = []
        base, lag = self._data + self.width, self._spare // 2
        products = count()
        for acc, w, x, first in terms:
            into = acc if first else base + next(products) % self._spare
            text.append(f"vmul.f32 s{into}, s{x}, s{w}")
            waiting += [] if first else [f"vadd.f32 s{acc}, s{acc}, s{into}"]
            if len(waiting) > lag:
                text.append(waiting.pop(0))
        return text + waiting

    def _finish(self, phase: int, place: int) -> Text:
        """Bias, clamp and stores of a row of results; `place` tells labels apart."""
        sums = [self._sum(phase, p) for p in range(self.columns)]
        text: Text = [f"vadd.f32 s{a}, s{a}, s{self._bias}" for a in sums]
        next_row: Text = ["add %[o], %[o], %[orow]"]
        if self.clamp.lo is None or self.clamp.hi is None:
            return text + self._raw(sums) + next_row
        if not (self.clamp.keeps or self.clamp.rectifies):
            return text + self._raw(sums) + self._one_by_one(sums, place) + next_row
        test: Text = [*self._total(sums), f"vmov %[t], s{self._data}", "ubfx %[t], %[t], #23, #8", "cmp %[t], #255"]
        stores = self._raw(sums) if self.clamp.keeps else self._rectified(sums)
        return text + test + [f"beq {20 + place}f"] + stores + [f"{60 + place}:"] + next_row

    def _exceptions(self, place: int) -> Text:
        """A row of results with a number that is not finite, out of the way."""
        if not (self.clamp.keeps or self.clamp.rectifies) or self.clamp.lo is None:
            return []
        at = place - self.rows_open * self.loop
        phase = place if at < 0 else at % self.rows_open if self.loop else (self.start + at) % self.rows_open
        sums = [self._sum(phase, p) for p in range(self.columns)]
        return [f"{20 + place}:", *self._raw(sums), *self._one_by_one(sums, place), f"b {60 + place}b"]

    def _total(self, sums: Sequence[int]) -> Text:
        """In the first register of data a number that is finite only if all results are."""
        d, n = self._data, len(sums)
        text: Text = [f"vadd.f32 s{d + i // 2}, s{sums[i]}, s{sums[i + 1]}" for i in range(0, n - 1, 2)]
        if n % 2:
            text.append(f"vadd.f32 s{d}, s{d}, s{sums[-1]}")
        left = n // 2
        while left > 1:
            text += [f"vadd.f32 s{d + i}, s{d + i}, s{d + left - 1 - i}" for i in range(left // 2)]
            left -= left // 2
        return text

    def _raw(self, sums: Sequence[int]) -> Text:
        text: Text = []
        for p, a in enumerate(sums):
            offset = 4 * self.channels * p
            far = [f"vmov %[t], s{a}", f"str %[t], [%[o], #{offset}]"]
            text += [f"vstr.32 s{a}, [%[o], #{offset}]"] if offset <= NEAR else far
        return text

    def _rectified(self, sums: Sequence[int]) -> Text:
        """Finite results through core registers."""
        text: Text = []
        for p in range(0, len(sums), 2):
            pair = [("t", p), ("u", p + 1)][: len(sums) - p]
            both = f"vmov %[t], %[u], s{sums[p]}, s{sums[p] + 1}"
            text.append(both if len(pair) == 2 else f"vmov %[t], s{sums[p]}")
            for r, _ in pair:
                text.append(f"bic %[{r}], %[{r}], %[{r}], asr #31")
                if self._has_six:
                    text += [f"cmp %[{r}], %[w]", "it gt", f"movgt %[{r}], %[w]"]
            text += [f"str %[{r}], [%[o], #{4 * self.channels * at}]" for r, at in pair]
        return text

    def _one_by_one(self, sums: Sequence[int], place: int) -> Text:
        """Clamp stored results where they are, as the operators' descriptions do."""
        low, high, value = sums[0], sums[1], self._data
        assert self.clamp.lo is not None
        assert self.clamp.hi is not None
        text: Text = []
        for s, bound in ((low, self.clamp.lo), (high, self.clamp.hi)):
            bits = bits_of(bound)
            text += [f"movw %[t], #{bits & 0xFFFF}", f"movt %[t], #{bits >> 16}", f"vmov s{s}, %[t]"]
        text += ["mov %[u], %[o]", f"mov %[t], #{self.columns}", f"{100 + place}: vldr.32 s{value}, [%[u]]"]
        for s, condition in ((low, "mi"), (high, "gt")):
            text += [
                f"vcmp.f32 s{value}, s{s}",
                "vmrs APSR_nzcv, fpscr",
                f"it {condition}",
                f"vmov{condition}.f32 s{value}, s{s}",
            ]
        text += [f"vstr.32 s{value}, [%[u]]", f"add %[u], %[u], #{4 * self.channels}"]
        return [*text, "subs %[t], %[t], #1", f"bne {100 + place}b"]
