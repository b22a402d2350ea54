"""Convolutions that random runs found wrong on the core."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.topi.batch import Batch
from tests.topi.drawn import KERNELS, make_case
from tests.topi.intrin.test_intrin import needs_board
from tests.topi.layers import Layer

FAILED_ONCE = [
    # GCC gave one register to the number of rows and to their distance, both 3.
    Layer("conv", (1, 6, 5, 1), (7, 3, 3, 1), (2, 1), (2, 0, 0, 0), (2, 2), -110, seed=1),
]


@pytest.mark.qemu
@needs_board
@pytest.mark.parametrize("layer", FAILED_ONCE)
def test_what_failed_once(layer: Layer, tmp_path: Path) -> None:
    case = make_case(KERNELS["conv arm_mve.conv2d"][1], layer)
    assert case is not None
    assert Batch([case]).run("mps3-an547", tmp_path) == []
