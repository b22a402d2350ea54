"""SMLAL chains over rows of the image without scratch, against the operators' meaning; on boards: tests/topi/test_drawn.py."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.topi.drawn import KERNELS, make_case, random_cases
from tests.topi.layers import Layer
from tests.topi.runs import interpreted

NAME = "conv arm_dsp.conv2d_chain_rows"


def test_drawn_layers() -> None:
    interpreted(islice(random_cases(NAME, 4), 4))


@pytest.mark.parametrize("padding", [(0, 0, 0, 0), (1, 1, 1, 1), (0, 2, 2, 0)])
@pytest.mark.parametrize("strides", [(1, 1), (2, 3)])
def test_borders(padding: tuple[int, int, int, int], strides: tuple[int, int]) -> None:
    """Rows that lie outside, in part or whole, take the padding's value."""
    layer = Layer("conv", (1, 7, 8, 8), (4, 3, 5, 8), strides, padding, pad_value=7, out_zp=5)
    case = make_case(KERNELS[NAME][1], layer)
    assert case is not None
    interpreted([case])
