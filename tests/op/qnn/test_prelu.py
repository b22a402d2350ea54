"""PRELU of codes of 8 and 16 bits, with slopes that are broadcast."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from aot.testing import Quant
from tests.op._differential import FAST, check
from tests.op._one_op import Spec, one_op
from tests.op.qnn._quants import QUANTS

SLOPES = st.sampled_from([(1, 1, 6), (4, 1, 6), (6,), (4, 5, 6)])


@given(QUANTS, QUANTS, QUANTS, st.sampled_from(["int8", "int16"]), SLOPES, st.integers(0, 99))
@FAST
def test_random(x: Quant, alpha: Quant, y: Quant, dtype: str, shape: tuple[int, ...], seed: int) -> None:
    if dtype == "int16":
        x, y = (Quant(float(np.float32(q.scale / 256)), 0) for q in (x, y))
        alpha = Quant(alpha.scale, 0)
    y = Quant(max(y.scale, x.scale / 64, x.scale * alpha.scale), y.zero_point)
    slopes = np.random.default_rng(seed).integers(-128, 127, shape, np.int8, endpoint=True)
    inputs = [Spec((4, 5, 6), dtype, x), Spec(shape, "int8", alpha, slopes)]
    check(one_op("PRELU", inputs, [Spec((4, 5, 6), dtype, y)]))
