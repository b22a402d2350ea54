"""Matrices by vectors against the operators' meaning, with results that fill no whole vector; on the core: test_drawn.py."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from tests.topi.batch import Batch
from tests.topi.drawn import KERNELS, make_case, random_cases
from tests.topi.intrin.test_intrin import needs_board
from tests.topi.layers import Layer
from tests.topi.runs import interpreted

NAMES = ["dense arm_mve.dense", "dense arm_mve.matmul"]


@pytest.mark.parametrize("name", NAMES)
def test_drawn_layers(name: str) -> None:
    interpreted(islice(random_cases(name, 4), 3))


@pytest.mark.parametrize("units", [1, 4, 7])
@pytest.mark.parametrize("depth", [15, 16, 33])
def test_left_over_rows_and_columns(units: int, depth: int) -> None:
    """At least one kernel takes each, and all that do agree."""
    cases = [make_case(KERNELS[n][1], Layer("dense", (2, depth), (units, depth), out_zp=3)) for n in NAMES]
    found = [case for case in cases if case is not None]
    assert found
    interpreted(found)


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
