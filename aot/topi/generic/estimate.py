"""What the generic kernels of layers take on larger cores: how often each of their loops runs, times what it takes.

The numbers are from counts under QEMU of what GCC makes of the loops.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from aot.support.dataclass import dataclass

RESULT = 14.5
"""Of a result: its bias, requantisation and store."""

RUN = 11.0
"""Of beginning a run of taps."""

RANGED = 8.0
"""More where a run begins and ends elsewhere for each pixel."""

NEAR = 6.0
"""Less where runs lie one behind the other in the data, so that there is no window to find."""

STEP = 4.0
"""Of going on to the next step of a run."""

MANY = 8
"""Accumulators, in a loop, that leave too few registers for the rest."""

SPILLED = 3.8
"""Of each tap, with so many."""

SHARED = 5.0
"""Of each tap where GCC keeps what one pixel has read for the next one, in memory as registers lack."""

LEAVES_FAR = 2
"""Steps over which GCC keeps that."""

CHANNEL, CHANNEL_ALONE = 1.7, 1.5
"""Of each load and product of one channel's tap in a depthwise convolution, with the loop over the taps and the addresses that
registers lack for; of channels that are one block.
"""


@dataclass(frozen=True, slots=True)
class TapLoops:
    """The sums of one block of channels over all `tiles` tiles of `pixels` pixels: `runs` runs of in all `taps` taps, `unroll` of
    them a step.

    `offset`: data is read less a number; `ranged`: where a run begins and ends depends on the pixel; `straight`: a run is one
    step; `near`: runs lie one behind the other; `apart`: by how many taps the data of neighbouring pixels lie apart in one run,
    0 where they have none in common.
    """

    tiles: int
    pixels: int
    runs: int
    taps: int
    unroll: int
    offset: bool = False
    ranged: bool = False
    straight: bool = False
    near: bool = False
    apart: int = 0

    def instructions(self, channels: int) -> float:
        """Of one block of so many channels."""
        results = self.pixels * channels
        each: float = self.pixels + channels + results + self.pixels * self.offset
        if not self.straight:
            shared = 0 < self.apart <= LEAVES_FAR * self.unroll
            each += STEP / self.unroll + SPILLED * (results >= MANY) + SHARED * shared
        return self.taps * each + self.runs * (RUN + RANGED * self.ranged - NEAR * self.near) + self.tiles * results * RESULT


def channel_instructions(taps: int, pixels: int, blocks: Sequence[int], *, offset: bool) -> float:
    """Of all blocks of a depthwise convolution: the pixels have `taps` taps together."""
    each = (CHANNEL if len(blocks) > 1 else CHANNEL_ALONE) * (3 + offset)
    return sum(blocks) * (each * taps + RESULT * pixels)


def taps_inside(count: int, *, size: int, taps: int, stride: int, dilation: int, before: int) -> int:
    """How many taps of an axis lie inside it, over all `count` output positions."""
    return sum(0 <= i * stride - before + t * dilation < size for i in range(count) for t in range(taps))


def total(loops: TapLoops, blocks: Iterable[int]) -> float:
    """Of all blocks of channels, by the numbers of channels of each."""
    return sum(loops.instructions(n) for n in blocks)
