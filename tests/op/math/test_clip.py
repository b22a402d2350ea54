"""clip, and that a model's fused activations are the operators' own clamps."""

from __future__ import annotations

import numpy as np
import pytest

from aot.ir.op import TypeRuleError
from aot.ir.type import TensorType
from aot.op.qnn.quantize import ClipAttrs
from aot.relay.expr import Function, Var, call
from tests.op._differential import EVERY_CODE, check_lowering, evaluate, same


@pytest.mark.parametrize(("lo", "hi"), [(-128, 127), (-5, 60), (7, 7), (-128, -128), (127, 127)])
def test_clip(lo: int, hi: int) -> None:
    x = Var("x", TensorType((1, 256), "int8"))
    func = Function((x,), call("clip", [x], ClipAttrs(lo, hi)))
    wanted = [np.minimum(np.maximum(EVERY_CODE, np.int8(lo)), np.int8(hi))]
    same(evaluate(func, [EVERY_CODE]), wanted, "clip")
    if (lo, hi) != (-128, 127):
        check_lowering(func, [[EVERY_CODE]], [wanted], host=False)


@pytest.mark.parametrize(("lo", "hi"), [(-129, 0), (0, 128), (3, 2)])
def test_bounds_must_be_codes(lo: int, hi: int) -> None:
    with pytest.raises(TypeRuleError):
        call("clip", [Var("x", TensorType((1,), "int8"))], ClipAttrs(lo, hi))
