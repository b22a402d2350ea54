"""Channels that results depend on, against a graph that is run with each channel changed."""

from __future__ import annotations

import numpy as np
import pytest

from aot.relay.expr import Expr, Function
from aot.relay.interpreter import evaluate
from aot.relay.transform.channels import channel_intervals, channel_liveness
from tests.relay.channel_nets import QuantNet


def unread(seed: int, dead: list[int], *, changed: int | None = None) -> tuple[Function, Expr]:
    """A tensor of five channels, of which a second layer reads those in `dead` with zero weights only; `changed` is one of
    the five that is computed from other weights.
    """
    net = QuantNet(seed)
    x = net.input(1, 3, 3, 2)
    weights = net.weights(5, 1, 1, 2)
    if changed is not None:
        weights[changed] ^= 0x55
    first = net.finish(net.conv(x, weights))
    w = net.weights(3, 1, 1, 5)
    w[w == 0] = 1
    w[..., dead] = 0
    return net.func(net.conv(first, w)), first


@pytest.mark.parametrize("dead", [[], [0], [1, 4], [0, 1, 2, 3]])
def test_channels_of_zero_weights_are_not_needed(dead: list[int]) -> None:
    func, first = unread(3, dead)
    found = channel_liveness(func, channel_intervals(func))
    assert np.flatnonzero(~found.mask(first)).tolist() == dead
    assert found.mask(func.body).all()
    assert id(first) in found.live


@pytest.mark.parametrize("dead", [[0], [1, 4]])
def test_what_is_not_needed_changes_nothing(dead: list[int]) -> None:
    """With other weights for these channels the graph computes the same."""
    func, first = unread(4, dead)
    x = np.random.default_rng(5).integers(-128, 128, func.params[0].type.shape).astype(np.int8)

    mask = channel_liveness(func, channel_intervals(func)).mask(first)
    (expected,) = evaluate(func, [x])
    others = [evaluate(unread(4, dead, changed=c)[0], [x])[0] for c in range(5)]
    assert [not np.array_equal(other, expected) for other in others] == mask.tolist()


def test_alignment_keeps_whole_groups() -> None:
    func, first = unread(3, [1, 3, 4])
    intervals = channel_intervals(func)
    assert int(channel_liveness(func, intervals).mask(first).sum()) == 2
    kept = channel_liveness(func, intervals, align=4).mask(first)
    assert kept.tolist() == [True, True, True, True, False]


def test_one_channel_stays_where_none_is_needed() -> None:
    func, first = unread(3, [0, 1, 2, 3, 4])
    assert channel_liveness(func, channel_intervals(func)).mask(first).tolist() == [True, False, False, False, False]
