"""Depthwise layers of large windows, whose weights do not fit the registers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.topi.batch import Batch
from tests.topi.drawn import KERNELS, Case, make_case
from tests.topi.intrin.test_intrin import needs_board
from tests.topi.layers import Layer
from tests.topi.runs import interpreted


def large_windows(count: int) -> list[Case]:
    """Windows of 50 to 128 taps."""
    rng = np.random.default_rng(5)
    found: list[Case] = []
    while len(found) < count:
        kh, kw = int(rng.integers(5, 13)), int(rng.integers(5, 11))
        h, w = kh + int(rng.integers(0, 12)), kw + int(rng.integers(0, 9))
        c, m = int(rng.integers(1, 12)), int(rng.integers(1, 4))
        strides = (int(rng.integers(1, 3)), int(rng.integers(1, 3)))
        layer = Layer(
            "dw", (1, h, w, c), (1, kh, kw, c * m), strides, (kh // 2, kw // 2, 0, 1), pad_value=3,
            out_zp=(-128, 5)[len(found) % 2], multiplier=m, seed=len(found), rounding=("single", "double")[len(found) % 3 % 2],
        )  # fmt: skip
        case = make_case(KERNELS["dw arm_mve.depthwise"][1], layer) if 49 < kh * kw <= 128 else None
        found += [] if case is None else [case]
    return found


@pytest.mark.slow
def test_large_windows_in_the_interpreter() -> None:
    interpreted(large_windows(8))


@pytest.mark.qemu
@needs_board
def test_large_windows_on_the_core(tmp_path: Path) -> None:
    assert Batch(large_windows(30)).run("mps3-an547", tmp_path) == []
