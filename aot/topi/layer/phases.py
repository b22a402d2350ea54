"""Phases of a transposed convolution: the results of one remainder of the stride are an ordinary convolution of stride 1.

Of stride s, output row s*Y + r takes the taps rest, rest + s ... of the window, with rest = (r + cut) % s, from the data rows
Y + base, Y + base - 1 ... with base = (r + cut) / s: in the order of the data, the last tap comes first.  Columns likewise.
"""

from __future__ import annotations

from aot.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class PhaseAxis:
    """Rows or columns of a phase: how many results, which taps in the order of the data, and how many of those come before the
    datum of the result's own number Y.
    """

    out: int
    taps: tuple[int, ...]
    before: int

    @property
    def behind(self) -> int:
        return len(self.taps) - 1 - self.before


def phase_axes(*, out: int, kernel: int, stride: int, cut: int) -> list[PhaseAxis]:
    """Those of the remainders 0 to stride - 1; some may have no results or no taps."""
    found = []
    for remainder in range(stride):
        base, rest = divmod(remainder + cut, stride)
        taps = tuple(range(rest, kernel, stride))[::-1]
        found.append(PhaseAxis(max(0, -(-(out - remainder) // stride)), taps, len(taps) - 1 - base))
    return found
