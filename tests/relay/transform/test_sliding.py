"""Windows that move: what the analysis claims of every tensor."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from aot.op.common.layer import PoolAttrs
from aot.op.nn.conv import Conv2DAttrs
from aot.relay.expr import Expr, Function, call, const, make_tuple, post_order, tensor_type
from aot.relay.interpreter import evaluate
from aot.relay.transform.sliding import Slide, sliding
from tests.relay.slide_nets import MOVING, SlideNet, slide_net, windows
from tests.scale import cases


def conv(x: Expr, *, kernel: int, stride: int = 1, dilation: int = 1, padding: tuple[int, int] = (0, 0)) -> Expr:
    """Along the height only, one channel of int8."""
    channels = tensor_type(x).shape[3]
    weight = const(np.ones((1, kernel, 1, channels), np.int8))
    attrs = Conv2DAttrs((stride, 1), (padding[0], 0, padding[1], 0), (dilation, 1), acc_dtype="int32")
    return call("cast", [call("nn.conv2d", [x, weight], attrs)], _to_int8())


def _to_int8() -> object:
    from aot.op.math.unary import CastAttrs

    return CastAttrs("int8")


def slide_of(expr: Expr, hop: int) -> Slide | None:
    """How the last tensor of a network over `x` moves."""
    x = next(e for e in post_order(expr) if tensor_type(e) == MOVING.type)
    return sliding(Function((x,), expr), {"x": (1, hop)}).of(expr)  # type: ignore[arg-type]


def edges(expr: Expr, hop: int) -> tuple[int, int, int]:
    """(shift, lo, hi)"""
    slide = slide_of(expr, hop)
    assert slide is not None
    return slide.shift, slide.lo, slide.hi


def test_padding_same_spreads_one_row_a_layer() -> None:
    """The network of keyword spotting: windows of 10 with stride 2, then of 3; 6, 8, 10 rows of 25 are computed."""
    first = conv(MOVING, kernel=10, stride=2, padding=(4, 5))
    second = conv(first, kernel=3, padding=(1, 1))
    third = conv(second, kernel=3, padding=(1, 1))
    assert [edges(e, 2) for e in (first, second, third)] == [(1, 2, 22), (1, 3, 21), (1, 4, 20)]
    assert edges(first, 10) == (5, 2, 22)


def test_valid_windows_have_no_edges() -> None:
    layer = conv(conv(MOVING, kernel=3), kernel=3, dilation=8)
    assert edges(layer, 1) == (1, 0, 31)


def test_padding_in_front_only_leaves_the_end() -> None:
    assert edges(conv(MOVING, kernel=5, padding=(4, 0)), 1) == (1, 4, 49)


def test_a_stride_needs_a_multiple() -> None:
    layer = conv(MOVING, kernel=3, stride=2)
    found = sliding(Function((MOVING,), layer), {"x": (1, 3)})
    assert found.of(layer) is None
    assert list(found.reasons.values()) == ["has the stride 2, which 3 rows are no multiple of (a hop 2 times as large is)"]
    assert found.factor == 2


def test_branches_must_move_alike() -> None:
    fast, slow = conv(MOVING, kernel=1), conv(MOVING, kernel=2, stride=2)
    joined = call("concatenate", [conv(fast, kernel=26), slow], _along(3))
    found = sliding(Function((MOVING,), joined), {"x": (1, 2)})
    assert found.reasons[id(joined)] == "joins tensors that move by 1 and 2 rows"


def _along(axis: int) -> object:
    from aot.op.tensor import ConcatenateAttrs

    return ConcatenateAttrs(axis)


def test_pooling_over_everything_reads_all() -> None:
    pool = call("nn.avg_pool2d", [MOVING], PoolAttrs((49, 1), (49, 1), (0, 0, 0, 0), -128, 127))
    assert sliding(Function((MOVING,), pool), {"x": (1, 7)}).reasons[id(pool)] == "works over all rows"


def check_contract(net: SlideNet, *, seed: int) -> None:
    """Row r of each tensor that slides is row r + shift of the run before, for rows of [lo, hi)."""
    found = sliding(net.main, net.hops)
    nodes = [e for e in post_order(net.main.body) if found.of(e) is not None]
    probe = Function(net.main.params, make_tuple(nodes))
    runs = [evaluate(probe, [window]) for _, window in windows(net, 3, seed=seed)]
    for k, node in enumerate(nodes):
        slide = found.table[id(node)]
        for last, this in pairwise(runs):
            old = np.take(last[k], range(slide.lo + slide.shift, slide.hi), axis=slide.axis)
            new = np.take(this[k], range(slide.lo, max(slide.lo, slide.hi - slide.shift)), axis=slide.axis)
            np.testing.assert_array_equal(old, new, err_msg=f"seed {seed}: {node.span}")


def test_random_networks_keep_the_contract() -> None:
    for seed in range(30):
        check_contract(slide_net(seed), seed=seed)


@pytest.mark.slow
def test_five_hundred_random_networks() -> None:
    for seed in range(1000, 1000 + cases(500)):
        check_contract(slide_net(seed), seed=seed)
