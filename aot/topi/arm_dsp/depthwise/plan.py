"""Plans of depthwise strips: where weights lie, what a strip covers, and which multiply instructions a kernel row takes.

A plane's line is `pitch` halfwords (even), so a word holds the pixels of columns 2i and 2i + 1.  Outputs that start
in an even column take SMLAD with the weight pairs (w0, w1), (w2, w3)..., those that start in an odd one with (w1,
w2), (w3, w4)...; a tap left over is a single SMLAxy with one half of a word.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache

from aot.support.dataclass import dataclass

Tap = tuple[int, int]
"""(row, column) of the kernel."""

NUMBERS = ("bias", "constant", "multiplier", "shift")
RESIDENT_WORDS = 6
STREAMED_WORDS = 6
STREAMED_OUTPUTS = 4


@dataclass(frozen=True, slots=True)
class RequantForm:
    """Requantisation of pre-scaled accumulators: high multiply plus constant, shift, clamp (see topi/requant.py).

    `shift` is -1 where each channel has its own, which then follows the constant in the stream.  `rounded` requests
    SMMLAR, `signed` adds the sign of the accumulator times 2^(prescale - 1).  `table`: the result is what a table has for it.
    `halves`: data and results are int16, the results from the type's least or from 0 on.
    `folded`: the bias holds the constant, which is not in the stream.
    """

    shift: int
    rounded: bool
    signed: bool
    lo: int
    hi: int
    prescale: int = 1
    table: bool = False
    halves: bool = False
    folded: bool = False

    @property
    def dtype(self) -> str:
        return "int16" if self.halves else "int8"


@dataclass(frozen=True, slots=True)
class Layout:
    """Where each tap's weight lies in a channel's stream: words of two int16, low half first.

    `odd`: some outputs start in an odd column.  A resident plan's words are followed by bias, constant, multiplier
    and where needed the shift; a streamed plan has the bias first.
    """

    kh: int
    kw: int
    odd: bool
    resident: bool

    @property
    def chunks(self) -> tuple[tuple[int, int], ...]:
        """The kernel row cut into runs (start, length) of columns whose words fit the registers; all but the last of
        even length.
        """
        widest = STREAMED_WORDS + 1 if self.odd else 2 * STREAMED_WORDS
        if self.resident or self.kw <= widest:
            return ((0, self.kw),)
        step = widest // 2 * 2
        return tuple((k, min(step, self.kw - k)) for k in range(0, self.kw, step))

    def chunk_words(self, chunk: tuple[int, int]) -> tuple[tuple[int, ...], ...]:
        """Columns in the halves of each word of a chunk of a row, singles last."""
        start, length = chunk
        words = [(start + k, start + k + 1) for parity in ((0, 1) if self.odd else (0,)) for k in range(parity, length - 1, 2)]
        singles = self._lonely(start, length)
        return (*words, *((k,) for k in singles))

    def _lonely(self, start: int, length: int) -> tuple[int, ...]:
        """Taps that are needed alone and that no pair holds."""
        if length == 1 or (length % 2 and not self.odd):
            return (start + length - 1,)
        return ()

    @property
    def words(self) -> tuple[tuple[Tap, ...], ...]:
        """The taps in the halves of each weight word of a channel; one tap where the high half is zero."""
        return _words(self)

    @property
    def first(self) -> int:
        """Words before the weights: a streamed plan has the bias there."""
        return 0 if self.resident else 1

    def half(self, tap: Tap) -> int:
        """The index of a tap's weight in the channel's stream, in int16 units (the first of its places)."""
        return 2 * self.first + _places(self)[tap][0]


@lru_cache(maxsize=64)
def _words(layout: Layout) -> tuple[tuple[Tap, ...], ...]:
    rows = range(layout.kh)
    if not layout.resident:
        return tuple(tuple((r, k) for k in word) for r in rows for chunk in layout.chunks for word in layout.chunk_words(chunk))
    row = layout.chunk_words((0, layout.kw))
    pairs = [tuple((r, k) for k in word) for r in rows for word in row if len(word) == 2]
    singles = [(r, word[0]) for r in rows for word in row if len(word) == 1]
    return (*pairs, *(tuple(singles[i : i + 2]) for i in range(0, len(singles), 2)))


@lru_cache(maxsize=64)
def _places(layout: Layout) -> Mapping[Tap, tuple[int, ...]]:
    """The halves that hold each tap."""
    places: dict[Tap, tuple[int, ...]] = {}
    for i, word in enumerate(_words(layout)):
        for half, tap in enumerate(word):
            places[tap] = (*places.get(tap, ()), 2 * i + half)
    return places


def packed_words(layout: Layout) -> int:
    return (len(layout.words) + 1) // 2


@dataclass(frozen=True, slots=True)
class Strip:
    """What a block does; steps of the result in bytes, `dilation` of the kernel's rows only, `fpu`: there are FPU registers.

    `packed` (resident plans): two weight words lie in one word of bytes, see unpack, and weights count 256 times.
    `shared`: rows and steps are operands of the block, so that layers of any size use one function; the fields are 0.
    """

    layout: Layout
    stride: tuple[int, int]
    dilation: int
    pitch: int
    rows: int
    outputs: int
    column_step: int
    row_step: int
    rounding: RequantForm
    fpu: bool
    packed: bool = False
    shared: bool = False

    @property
    def constants(self) -> int:
        return 3 + (self.rounding.shift < 0)

    @property
    def weight_words(self) -> int:
        """Words of the stream that hold weights."""
        return packed_words(self.layout) if self.packed else len(self.layout.words)

    @property
    def stream_words(self) -> int:
        return self.weight_words + self.constants

    @property
    def number_indices(self) -> tuple[int, ...]:
        """Where in the stream bias, constant, multiplier and the shift (if it is there) lie."""
        after = range(self.layout.first + self.weight_words, self.stream_words)
        return tuple(after) if self.layout.resident else (0, *after)

    @property
    def row_bytes(self) -> int:
        """Between kernel rows in the plane."""
        return 2 * self.dilation * self.pitch

    @property
    def plane_size(self) -> int:
        """Halfwords from the strip's first pixel to the end of the last word that is loaded."""
        lines = (self.rows - 1) * self.stride[0] + (self.layout.kh - 1) * self.dilation
        columns = (self.outputs - 1) * self.stride[1] + self.layout.kw
        return lines * self.pitch + (columns + 1) // 2 * 2

    @property
    def step(self) -> int:
        """Outputs of one step."""
        if self.layout.resident:
            return min(2 if self.stride[1] % 2 else 1, self.outputs)
        return self.outputs

    @property
    def name(self) -> str:
        parts = []
        for part in (self.layout, self.rounding, self):
            values = [getattr(part, f.name) for f in fields(part) if f.name not in ("table", "halves", "folded")]
            parts += [str(int(v)) for v in values if isinstance(v, int)]
        parts += [str(v) for v in self.stride]
        return (
            "arm_dsp.dw_strip_"
            + "_".join(parts).replace("-", "m")
            + "_table" * self.rounding.table
            + "_halves" * self.rounding.halves
        )


@dataclass(frozen=True, slots=True)
class Mac:
    """One multiply instruction: output `output`, pixel word `pixels` of the kernel row, weight word `word`; op is d,
    bb, bt, tb or tt.
    """

    output: int
    pixels: int
    word: int
    op: str


def row_macs(layout: Layout, r: int, chunk: tuple[int, int], stride: int, outputs: int) -> list[Mac]:
    """The multiply instructions of one chunk of kernel row r, in the order of the pixel words, then of the outputs."""
    start, length = chunk
    places = _places(layout)
    found = []
    for j in range(outputs):
        k = start
        while k < start + length:
            pixel = j * stride + k
            if pixel % 2 == 0 and k + 1 < start + length:
                word = next(p // 2 for p in places[r, k] if p % 2 == 0 and p + 1 in places[r, k + 1])
                found.append(Mac(j, pixel // 2, word, "d"))
                k += 2
                continue
            place = places[r, k][0]
            found.append(Mac(j, pixel // 2, place // 2, "bt"[pixel % 2] + "bt"[place % 2]))
            k += 1
    return sorted(found, key=lambda m: (m.pixels, m.output))
