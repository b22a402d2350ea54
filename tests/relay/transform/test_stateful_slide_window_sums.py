"""Means and sums over a window that moves, from sums that are kept, give the bytes of whole runs."""

from __future__ import annotations

import pytest

from aot.frontend.tflite.reduce import mean_multiplier
from aot.ir.type import TensorType, per_tensor
from aot.numerics.fixed_point import quantize_multiplier
from aot.op.reduce import MeanAttrs
from aot.relay.expr import Function, Var, call
from tests.relay.slide_nets import SlideNet, planned, slide_net
from tests.relay.transform.test_stateful_slide_window import check_runs


def test_means_over_time_are_running_sums() -> None:
    for seed in (82, 104, 334, 481):
        net = slide_net(seed)
        assert planned(net).sums
        check_runs(net, runs=40, seed=seed)


def quantised_mean(name: str, *, keepdims: bool) -> SlideNet:
    """MEAN or SUM of [1, 40, 3, 2] over time and width, with zero points that count."""
    x = Var("x", TensorType((1, 40, 3, 2), "int8", per_tensor(0.5, -7)))
    real = 0.9 if name == "mean" else 0.02
    multiplier, shift = mean_multiplier(real, 120) if name == "mean" else quantize_multiplier(real)
    attrs = MeanAttrs((1, 2), keepdims, -7, multiplier, shift, 11)
    return SlideNet(Function((x,), call(name, [x], attrs)), 1, 2)


@pytest.mark.parametrize("name", ["mean", "qnn.sum"])
def test_quantised_means_and_sums_over_time(name: str) -> None:
    for keepdims in (True, False):
        net = quantised_mean(name, keepdims=keepdims)
        (total,) = planned(net).sums.values()
        assert (total.count, total.numbers, total.leaving) == (120, 2, (0, 2))
        check_runs(net, runs=60, seed=3)
