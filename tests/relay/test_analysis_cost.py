"""Multiplications and weights of a graph, against sums by hand."""

from __future__ import annotations

from aot.relay.analysis import Cost, cost
from aot.relay.transform import fuse_ops
from tests.relay.channel_nets import SAME3, QuantNet
from tests.relay.check import run


def test_every_output_takes_the_weights_of_its_channel() -> None:
    net = QuantNet(1)
    first = net.finish(net.conv(net.input(1, 5, 4, 3), net.weights(7, 3, 3, 3), padding=SAME3))
    func = net.func(net.finish(net.depthwise(first, net.weights(1, 3, 3, 14), padding=SAME3)))
    convolution, depthwise = 5 * 4 * 7 * (3 * 3 * 3), 5 * 4 * 14 * (3 * 3)
    assert cost(func) == Cost(convolution + depthwise, 7 * 3 * 3 * 3 + 3 * 3 * 14)
    assert cost(run(fuse_ops, func)) == cost(func), "layers inside fused functions count too"


def test_two_layers_of_one_matrix_have_its_bytes_twice() -> None:
    """The cost is that of the layers, not of what is stored."""
    net = QuantNet(2)
    x, w = net.input(1, 2, 2, 4), net.weights(6, 1, 1, 4)
    assert cost(net.func(net.conv(x, w), net.conv(x, w))) == Cost(2 * 4 * 6 * 4, 2 * 24)
