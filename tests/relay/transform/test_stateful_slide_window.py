"""A network that takes its new rows only gives the bytes of whole runs."""

from __future__ import annotations

import numpy as np
import pytest

from aot.ir.type import TensorType, per_tensor
from aot.op.nn.conv import Conv2DAttrs
from aot.op.tensor import ReshapeAttrs, TransposeAttrs
from aot.relay.expr import Function, Var, call, const
from aot.relay.interpreter import StatefulFunction, evaluate
from aot.relay.transform.stateful import over_new_rows, with_narrow_windows
from tests.relay.slide_nets import SlideNet, planned, slide_net, windows
from tests.scale import cases


def check_runs(net: SlideNet, *, runs: int, seed: int) -> None:
    """Every output of every run is that of a whole run on the window, from the first one on."""
    slid = StatefulFunction(with_narrow_windows(over_new_rows(net.main, planned(net))))
    for k, (rows, window) in enumerate(windows(net, runs, seed=seed)):
        for got, want in zip(slid.run([rows]), evaluate(net.main, [window]), strict=True):
            np.testing.assert_array_equal(got, want, err_msg=f"seed {seed}, run {k}")


def test_random_networks_give_the_bytes_of_whole_runs() -> None:
    for seed in range(30):
        check_runs(slide_net(seed), runs=8, seed=seed)


def test_reset_begins_with_zeros_again() -> None:
    net = slide_net(3)
    slid = StatefulFunction(over_new_rows(net.main, planned(net)))
    first = slid.run([windows(net, 1, seed=1)[0][0]])
    slid.run([windows(net, 1, seed=2)[0][0]])
    slid.reset()
    for a, b in zip(first, slid.run([windows(net, 1, seed=1)[0][0]]), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_five_hundred_random_networks() -> None:
    gains = 0
    for seed in range(1000, 1000 + cases(500)):
        net = slide_net(seed)
        check_runs(net, runs=200, seed=seed)
        gains += planned(net).gains
    assert gains > cases(500) // 2, "most of the networks have something to gain"


def test_time_may_get_another_axis_in_a_tensor_of_more_of_them() -> None:
    """[1, 3, 8] as [1, 3, 1, 8]: the axis of the result is one that the operand does not have."""
    x = Var("x", TensorType((1, 3, 8), "int8", per_tensor(0.5, 4)))
    image = call("reshape", [x], ReshapeAttrs((1, 3, 1, 8)))
    turned = call("transpose", [image], TransposeAttrs((0, 3, 2, 1)))
    layer = call("nn.conv2d", [turned, const(np.ones((2, 3, 1, 3), np.int8))], Conv2DAttrs((1, 1), (1, 0, 1, 0)))
    check_runs(SlideNet(Function((x,), layer), 2, 2), runs=6, seed=0)
