"""Results of wider elements than the data may lie over data that start where they do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aot.tir.analysis import Distance, safe_distances
from tests.topi.drawn import KERNELS, Case, make_case
from tests.topi.layers import Layer
from tests.topi.runs import interpreted

POINTWISE = Layer("conv", (1, 5, 4, 8), (8, 1, 1, 8), out_zp=5)


def distance(case: Case) -> Distance:
    func = case.lowered.func
    return safe_distances(func)[func.inputs[0], func.outputs[0]]


@pytest.mark.parametrize("columns", [3, 4])
@pytest.mark.parametrize("name", ["conv2d_w8", "conv2d_chain"])
def test_dequantised_results_may_start_with_the_data(name: str, columns: int) -> None:
    layer = replace(POINTWISE, data=(1, 5, columns, 8))
    impl = KERNELS[f"conv arm_dsp.{name}"][1]
    plain, wide = make_case(impl, layer), make_case(impl, layer, tail="dequantize")
    assert plain is not None
    assert wide is not None
    interpreted([wide])
    assert distance(wide).down <= 0 < distance(wide).up
    assert distance(plain).up <= 8 < distance(plain).down  # the last group of pixels may start one early
