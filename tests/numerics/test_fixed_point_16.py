"""The logistic function and tanh of 16 bits, against the real ones."""

from __future__ import annotations

import numpy as np

from aot.numerics.fixed_point import sigmoid16, tanh16


def test_functions_are_near_the_real_ones() -> None:
    x = np.arange(-32768, 32768).astype(np.int16)
    real = x.astype(np.float64)
    assert np.abs(sigmoid16(x) / 32768 - 1 / (1 + np.exp(-real / 4096))).max() < 4e-4
    for bits in range(7):
        assert np.abs(tanh16(x, bits) / 32768 - np.tanh(real / 2 ** (15 - bits))).max() < 4e-4
