"""What a graph costs: multiplications and weights."""

from __future__ import annotations

from math import prod

from aot.ir.op import Op
from aot.relay.expr import Call, Constant, Function, post_order, tensor_type
from aot.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Cost:
    """Multiply-accumulates of one inference, and bytes of the layers' weights (without biases)."""

    macs: int = 0
    weight_bytes: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.macs + other.macs, self.weight_bytes + other.weight_bytes)


_INTEGER = ("nn.conv2d", "nn.depthwise_conv2d", "nn.dense", "nn.conv2d_transpose")
LAYERS = frozenset({*_INTEGER, *(f"{name}_float" for name in _INTEGER)})


def cost(func: Function) -> Cost:
    """Sum over convolutions and fully connected layers, also inside fused functions; padding counts as if it were read."""
    total = Cost()
    for expr in post_order(func.body):
        if isinstance(expr, Call) and isinstance(expr.op, Function):
            total += cost(expr.op)
        elif isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.name in LAYERS:
            total += layer_cost(expr)
    return total


def layer_cost(expr: Call) -> Cost:
    """One layer: each output element takes its channel's share of the weights; transposed, each input element does."""
    weight = tensor_type(expr.args[1])
    stored = weight.nbytes if isinstance(expr.args[1], Constant) else 0
    assert isinstance(expr.op, Op)
    name = expr.op.name.removesuffix("_float")
    if name == "nn.conv2d_transpose":
        return Cost(tensor_type(expr.args[0]).size * prod(weight.shape[:-1]), stored)
    taps = prod(weight.shape[:-1]) if name == "nn.depthwise_conv2d" else prod(weight.shape[1:])
    return Cost(tensor_type(expr).size * taps, stored)
