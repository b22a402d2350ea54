"""Groups that no kernel takes whole are cut where one takes a part."""

from __future__ import annotations

from aot.driver.options import Options
from tests.executor.matrix_nets import compiled, network


def test_layer_with_a_constant_behind_it_gets_its_kernel() -> None:
    _, kernels = compiled(network([700]), Options(opt="speed"))
    assert kernels == ["arm_dsp.dense_w8", "arm_dsp.add"]
