"""Geometry of a depthwise convolution whose taps lie side by side.

One axis of the image is the one along which outputs follow each other (`along`), the other one is `across`.  For a line of
outputs the scratch memory of a channel holds, position by position along, the KA taps across it: so the taps of an output are
KA * KL neighbouring bytes, and those of the next output begin KA * stride bytes behind.
"""

from __future__ import annotations

from aot.support.dataclass import dataclass
from aot.topi.arm_mve.requant import RequantForm
from aot.topi.arm_mve.stream import VECTOR
from aot.topi.layer.fused import FusedLayer

MOST_WEIGHTS = 4
"""Vectors of weights in registers; where there are more, one register less, as it takes the others in turn."""
MOST_VECTORS = 8
"""Vectors of the taps of an output."""
MOST_OFFSET = 1 << 15
"""Offsets of scattered bytes are 16 bits."""
LANES = 8
"""Channels that are taken apart at a time, and outputs that are stored at a time."""


@dataclass(frozen=True, slots=True)
class Axis:
    """Positions and taps along an axis; `step` and `out_step` in bytes from a position to the next, of data and result."""

    size: int
    out: int
    taps: int
    stride: int
    dilation: int
    before: int
    step: int
    out_step: int

    @property
    def reach(self) -> int:
        return (self.out - 1) * self.stride + (self.taps - 1) * self.dilation + 1

    @property
    def copied(self) -> int:
        """Positions of the data that are read."""
        return max(0, min(self.size, self.reach - self.before))


def axes_of(layer: FusedLayer) -> tuple[Axis, Axis]:
    """Rows and columns."""
    _, height, width, depth = layer.data_type.shape
    _, out_height, out_width, channels = layer.out_type.shape
    kh, kw, _ = layer.weight.shape
    attrs = layer.attrs
    y = Axis(height, out_height, kh, attrs.strides[0], attrs.dilation[0], attrs.padding[0], width * depth, out_width * channels)
    x = Axis(width, out_width, kw, attrs.strides[1], attrs.dilation[1], attrs.padding[1], depth, channels)
    return y, x


@dataclass(frozen=True, slots=True)
class Lines:
    """`band` lines of outputs at a time; `across`, `along` as above; `multiplier` output channels for each of the data."""

    across: Axis
    along: Axis
    swapped: bool
    band: int
    form: RequantForm
    multiplier: int = 1

    @property
    def taps(self) -> int:
        return self.across.taps * self.along.taps

    @property
    def shift(self) -> int:
        """Bytes from an output's taps to the next one's."""
        return self.across.taps * self.along.stride

    @property
    def line(self) -> int:
        """Bytes of a line of one channel."""
        return self.across.taps * ((self.along.out - 1) * self.along.stride + self.along.taps)

    @property
    def pitch(self) -> int:
        """Bytes of one channel."""
        return self.band * self.line

    @property
    def vectors(self) -> int:
        """Of the taps of an output."""
        return -(-self.taps // VECTOR)

    @property
    def resident(self) -> int:
        """Vectors of a single output's weights that stay in registers."""
        return self.vectors if self.vectors <= MOST_WEIGHTS else MOST_WEIGHTS - 1

    @property
    def shared(self) -> int:
        """Outputs whose taps one load brings, each with its own vector of weights."""
        if self.vectors > 1:
            return 1
        return min(MOST_WEIGHTS, (VECTOR - self.taps) // self.shift + 1, self.along.out)

    @property
    def weights(self) -> int:
        """Bytes of a channel's weights, zeros on both sides."""
        lead = (self.shared - 1) * self.shift
        return -(-(lead + VECTOR * self.vectors) // 4) * 4

    @property
    def record(self) -> int:
        """Bytes of a channel in the stream: weights, bias, multiplier, shift; shift to the left, what ties are multiplied by."""
        return self.weights + 12 + 4 * (self.form.left + (self.form.ties == 3))

    @property
    def fits(self) -> bool:
        if self.along.dilation != 1 or self.vectors > MOST_VECTORS or self.shift > 120:
            return False
        return LANES * self.along.out_step < MOST_OFFSET and (LANES - 1) * self.pitch + self.line < MOST_OFFSET
