"""Element-wise operators by vectors against the operators' meaning; on the core and many: tests/topi/test_drawn.py."""

from __future__ import annotations

from itertools import islice

import pytest

from aot.ir.type import TensorType
from aot.op.qnn.arithmetic import MultiplyAttrs
from aot.op.qnn.quantize import Requantize8Attrs
from aot.relay.expr import Var, call
from aot.support.dtype import int_range
from aot.tir.analysis import safe_distances
from tests.topi.drawn_elementwise import VECTORS, draw_elementwise
from tests.topi.drawn_groups import cases
from tests.topi.generic.test_copy import ADD
from tests.topi.groups import check_group, lowered
from tests.topi.runs import interpreted


def test_other_cores_and_shapes_are_left_to_others() -> None:
    (x, y), zps = (Var(n, TensorType((1, 4, 4, 32), "int8")) for n in "xy"), (0, 0)
    attrs = MultiplyAttrs(zps, 1 << 30, -5, 0, -128, 127)
    assert lowered("arm_mve.multiply", (x, y), call("qnn.multiply", [x, y], attrs), cpu="cortex-m55") is not None
    assert lowered("arm_mve.multiply", (x, y), call("qnn.multiply", [x, y], attrs), cpu="cortex-m55+nomve") is None
    x, y = Var("x", TensorType((1, 4, 4, 8), "int8")), Var("y", TensorType((1, 4, 1, 8), "int8"))
    assert lowered("arm_mve.multiply", (x, y), call("qnn.multiply", [x, y], attrs), cpu="cortex-m55") is None


def test_the_result_of_two_tensors_may_lie_over_either() -> None:
    pair = Var("x", TensorType((1, 37), "int8")), Var("y", TensorType((1, 37), "int8"))
    product = call("qnn.multiply", pair, MultiplyAttrs((3, -5), 1 << 30, -5, 0, -128, 127))
    for name, body in (("add", call("qnn.add", pair, ADD)), ("multiply", product)):
        low = lowered(f"arm_mve.{name}", pair, body, cpu="cortex-m55")
        assert low is not None
        assert [d.up for d in safe_distances(low.func).values()] == [0, 0]


@pytest.mark.parametrize("kind", VECTORS)
def test_some_in_the_interpreter(kind: str) -> None:
    interpreted(islice(cases(draw_elementwise, f"arm_mve.{kind}", kind, seed=4), 2))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("out_dtype", ["int8", "uint8"])
@pytest.mark.parametrize("delta", [-255, -128, -1, 3, 128, 255])
def test_codes_of_one_scale_are_shifted(dtype: str, out_dtype: str, delta: int) -> None:
    """Without a table, but for differences of zero points that instructions do not take."""
    x = Var("x", TensorType((256,), dtype))
    attrs = Requantize8Attrs(0, 1 << 30, 1, delta, *int_range(out_dtype), out_dtype)
    low = check_group("arm_mve.requantize8", (x,), call("qnn.requantize8", [x], attrs), cpu="cortex-m55")
    rest = delta - 128 * (dtype == "int8") + 128 * (out_dtype == "int8")
    assert bool(low.constants) == (not -128 <= rest <= 127 if out_dtype == "int8" else abs(rest) > 255)
