"""Geometry of depthwise planes: bands and strips."""

from __future__ import annotations

import pytest

from aot.topi.layer.im2col import Axis
from aot.topi.layer.planes import BAND_BYTES, band_height, equal_strips


@pytest.mark.parametrize("size", [1, 2, 5, 80, 89, 160, 1000])
def test_bands_are_small_and_few(size: int) -> None:
    """Heights for which a step to the next number of bands rounds to the same height must not stop the search."""
    for line in (8, 200, 332, 1000, 3000):
        for stride in (1, 2, 3):
            rows = Axis(size * stride, size, 3, stride, 1, 1, 1, 1)
            band = band_height(rows, line_bytes=line)
            assert band == 1 or line * ((band - 1) * stride + 3) <= BAND_BYTES
            larger = [h for h in {-(-size // n) for n in range(1, size + 1)} if h > band]
            assert all(line * ((h - 1) * stride + 3) > BAND_BYTES for h in larger)


@pytest.mark.parametrize("outputs", range(1, 40))
def test_strips_cover_a_row_from_even_columns_on(outputs: int) -> None:
    strips = equal_strips(outputs, 16)
    assert [first for first, _ in strips] == [sum(n for _, n in strips[:i]) for i in range(len(strips))]
    assert sum(n for _, n in strips) == outputs
    assert all(first % 2 == 0 for first, _ in strips)
    assert outputs == 1 or min(n for _, n in strips) > 1
