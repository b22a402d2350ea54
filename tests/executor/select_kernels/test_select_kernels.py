"""Kernels under budgets: layers of one matrix have it in flash once."""

from __future__ import annotations

from aot.driver.options import Options
from tests.executor.matrix_nets import WIDTH, compiled, network


def test_layers_of_one_matrix_hold_it_once_where_flash_is_short() -> None:
    func = network([700, 700, -900, 5000])
    fast, kernels = compiled(func, Options(opt="speed"))
    assert kernels[::2] == ["arm_dsp.dense_w8"] * 4
    assert sum(a.data.nbytes > WIDTH * WIDTH for a in fast.arrays) == 3, "one for each different bias"
    small, kernels = compiled(func, Options(opt="size", flash_budget=5000))
    assert kernels[::2] == ["arm_dsp.dense_w8_apart"] * 4
    assert [a.data.nbytes for a in small.arrays if a.data.nbytes >= WIDTH * WIDTH] == [WIDTH * WIDTH]
