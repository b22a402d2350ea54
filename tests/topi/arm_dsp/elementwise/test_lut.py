"""Tables by words against the operator's meaning."""

from __future__ import annotations

import numpy as np
import pytest

from aot.ir.type import TensorType, per_tensor
from aot.op.qnn.lut import LutAttrs
from aot.relay.expr import Var, call
from tests.topi.groups import check_group


@pytest.mark.parametrize("size", [32, 33, 63, 64, 200])
def test_by_words(size: int) -> None:
    x = Var("x", TensorType((1, size), "int8", per_tensor(0.1, 0)))
    table = tuple(int(v) for v in np.random.default_rng(size).integers(-128, 128, 256))
    check_group("arm_dsp.lut", (x,), call("qnn.lut", [x], LutAttrs(table)), seed=size)
