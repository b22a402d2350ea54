"""Random graphs of the toy operators, for hypothesis."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from aot.relay.expr import Expr, Function, const, get_item, make_tuple, tensor_type
from tests.relay.toy import Net, ScaleAttrs

_UNARY = ("neg", "scale", "flip", "conv", "rowmax", "view", "split")
_BINARY = ("add", "cat")


@st.composite
def functions(draw: Any, max_nodes: int = 14) -> Function:
    """A function of one to three inputs, with constants, sharing, dead nodes, tuples, and one or several outputs."""
    net = Net()
    shapes = [(2, 4), (1, 4), (2, 4)]
    pool: list[Expr] = [net.var(*shape) for shape in shapes[: draw(st.integers(1, 3))]]
    for _ in range(draw(st.integers(0, 2))):
        values = draw(st.lists(st.integers(-3, 3), min_size=4, max_size=4))
        pool.append(const(np.array([values], np.int8)))
    for _ in range(draw(st.integers(1, max_nodes))):
        pool.extend(draw(_nodes(net, pool)))
    outputs = draw(st.lists(st.sampled_from(pool), min_size=1, max_size=3))
    return net.func(outputs[0] if len(outputs) == 1 else make_tuple(outputs))


@st.composite
def _nodes(draw: Any, net: Net, pool: list[Expr]) -> list[Expr]:
    name = draw(st.sampled_from((*_UNARY, *_BINARY)))
    # Recent values more often, so that chains grow.
    x = draw(st.sampled_from(pool[-3:] if draw(st.booleans()) else pool))
    if name in _BINARY:
        partners = [p for p in pool if _fits(name, x, p)]
        return [net.op(name, x, draw(st.sampled_from(partners)))]
    if name == "split":
        halves = tensor_type(x).shape[-1] % 2 == 0
        split = net.op("split", x) if halves else None
        return [get_item(split, 0), get_item(split, 1)] if split is not None else [net.op("neg", x)]
    attrs = ScaleAttrs(draw(st.integers(-2, 2)), draw(st.integers(0, 2))) if name == "scale" else None
    return [net.op(name, x, attrs=attrs)]


def _fits(name: str, x: Expr, y: Expr) -> bool:
    a, b = tensor_type(x).shape, tensor_type(y).shape
    if name == "cat":
        return a[:-1] == b[:-1] and a[-1] + b[-1] <= 64
    try:
        return len(np.broadcast_shapes(a, b)) <= 2
    except ValueError:
        return False
