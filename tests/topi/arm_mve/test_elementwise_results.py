"""Epilogues of layers in vectors."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.topi.drawn import KERNELS, make_case
from tests.topi.layers import Layer
from tests.topi.runs import interpreted

LAYERS = {
    "conv arm_mve.conv2d": Layer("conv", (1, 3, 5, 8), (5, 3, 1, 8)),
    "dw arm_mve.depthwise": Layer("dw", (1, 4, 5, 9), (1, 3, 3, 9)),
    "dense arm_mve.dense": Layer("dense", (3, 20), (11, 20)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_table_takes_no_scratch_memory(name: str) -> None:
    plain, case = (make_case(KERNELS[name][1], LAYERS[name], tail=tail) for tail in ("", "table"))
    assert plain is not None
    assert case is not None
    assert [b.shape for b in case.lowered.func.scratch] == [b.shape for b in plain.lowered.func.scratch]
    assert [c.shape for c in case.lowered.constants.values()].count((256,)) == 1
    interpreted([case])


@pytest.mark.parametrize("tail", ["add", "relu", "dequantize"])
@pytest.mark.parametrize("name", LAYERS)
def test_epilogues_of_one_operator_are_vectors(name: str, tail: str) -> None:
    """By what they are said to take: element by element it would be 12 instructions."""
    layer = replace(LAYERS[name], data=(*LAYERS[name].data[:-1], 32), weight=(*LAYERS[name].weight[:-1], 32))
    plain, case = (make_case(KERNELS[name][1], layer, tail=kind) for kind in ("", tail))
    if name.startswith("dw") and tail == "dequantize":
        assert case is None  # results of another size than its sums
        return
    assert plain is not None
    assert case is not None
    (results,) = case.expected
    assert case.lowered.instructions - plain.lowered.instructions < 8 * results.size
    interpreted([case])
