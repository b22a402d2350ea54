"""Which reductions over a window that moves are kept as sums."""

from __future__ import annotations

from aot.ir.type import TensorType, per_tensor
from aot.op.common.layer import PoolAttrs
from aot.relay.expr import Function, Var, call
from tests.relay.slide_nets import SlideNet, planned


def test_a_mean_of_few_rows_is_computed_anew() -> None:
    """Where much of the window is new the kernels of whole windows are faster."""
    x = Var("x", TensorType((1, 8, 1, 2), "int8", per_tensor(0.5, 0)))
    pool = call("nn.avg_pool2d", [x], PoolAttrs((8, 1), (1, 1), (0, 0, 0, 0), -128, 127))
    assert not planned(SlideNet(Function((x,), pool), 1, 1)).sums
