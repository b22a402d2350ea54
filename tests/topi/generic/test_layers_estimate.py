"""What the generic kernels are estimated to take: how often their loops run, against the loops themselves."""

from __future__ import annotations

import numpy as np
import pytest

from aot.topi.generic.layers import TapLoops, channel_instructions, total
from aot.topi.layer.im2col import Axis


@pytest.mark.parametrize("seed", range(40))
def test_taps_inside_an_axis(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size, taps, stride, dilation, before = (
        int(rng.integers(low, high)) for low, high in ((1, 20), (1, 6), (1, 4), (1, 4), (0, 5))
    )
    count = int(rng.integers(1, 12))
    image = np.ones(size, int)
    padded = np.pad(image, (before, count * stride + taps * dilation))
    met = sum(int(padded[i * stride + t * dilation]) for i in range(count) for t in range(taps))
    assert Axis(size, count, taps, stride, dilation, before).taps_inside == met


def test_what_costs_more() -> None:
    """Loops cost more than straight lines, sums that registers lack for more than others, and blocks add up."""
    plain = TapLoops(tiles=10, pixels=1, runs=30, taps=240, unroll=4)
    assert TapLoops(10, 1, 30, 240, 4, straight=True).instructions(4) < plain.instructions(4)
    assert TapLoops(10, 1, 30, 240, 4, offset=True).instructions(4) > plain.instructions(4)
    assert TapLoops(10, 1, 30, 240, 4, ranged=True).instructions(4) > plain.instructions(4)
    assert TapLoops(10, 2, 30, 240, 4).instructions(4) > 2 * TapLoops(10, 2, 30, 240, 4).instructions(2) - 30 * 20
    assert TapLoops(10, 2, 30, 240, 4, apart=4).instructions(4) > TapLoops(10, 2, 30, 240, 4, apart=64).instructions(4)
    assert total(plain, [4, 4, 2]) == pytest.approx(2 * plain.instructions(4) + plain.instructions(2))
    assert channel_instructions(90, 10, [4, 4], offset=True) > 2 * channel_instructions(90, 10, [4], offset=False)
