"""SOFTMAX of int16 codes."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from aot.testing import Quant
from tests.op._differential import FAST, check, check_tflm, scales
from tests.op._one_op import Spec, one_op


@given(scales(), st.integers(1, 3), st.integers(1, 40), st.sampled_from([1.0, 0.7]), st.integers(0, 99))
@FAST
def test_random(scale: float, rows: int, depth: int, beta: float, seed: int) -> None:
    data = np.random.default_rng(seed).integers(-32768, 32767, (rows, depth), np.int16, endpoint=True)
    x, y = Quant(float(np.float32(scale / 512)), 0), Quant(2.0**-15, 0)
    model = one_op("SOFTMAX", [Spec(data.shape, "int16", x)], [Spec(data.shape, "int16", y)], version=3, beta=beta)
    check(model, [data], [np.full_like(data, 5)], host=seed == 0)
    if seed % 4 == 0:
        check_tflm(model, [data])
