"""BATCH_MATMUL on int8 and int16, with batches that are broadcast."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest

from aot.testing import Quant
from tests.op._differential import FAST, SEEDS, SLOW, check_drawn
from tests.op._one_op import Spec, one_op


@st.composite
def products(draw: st.DrawFn, left: str, right: str) -> bytes:
    """Broadcast batches, either side transposed, the right side a constant now and then."""
    m, k, n = (draw(st.integers(1, 6)) for _ in range(3))
    batches = draw(st.sampled_from([((), ()), ((2,), (2,)), ((3, 1), (2,)), ((2,), ())]))
    adj_x, adj_y = draw(st.booleans()), draw(st.booleans())
    a = (*batches[0], *((k, m) if adj_x else (m, k)))
    b = (*batches[1], *((n, k) if adj_y else (k, n)))
    rng = np.random.default_rng(draw(SEEDS))
    zero = left == "int8"
    qa, qb = (Quant(0.02, int(rng.integers(-128, 128)) if zero else 0) for _ in range(2))
    largest = 0.0004 * k**0.5 * (73.0 if left == "int8" else 18900.0) * (73.0 if right == "int8" else 18900.0)
    scale = float(np.float32(largest / (60 if zero else 12000) * draw(st.sampled_from([0.3, 1.0, 7.0]))))
    y = Quant(scale, int(rng.integers(-128, 128)) if zero else 0)
    limits = np.iinfo(right)
    data = rng.integers(limits.min, limits.max, b, right, endpoint=True) if draw(st.booleans()) else None
    out = Spec((*np.broadcast_shapes(*batches), m, n), left, y)
    inputs = [Spec(a, left, qa), Spec(b, right, qb, data)]
    return one_op("BATCH_MATMUL", inputs, [out], version=3 if left == "int16" else 2, adj_x=adj_x, adj_y=adj_y)


SIDES = [("int8", "int8"), ("int16", "int16"), ("int16", "int8")]


@pytest.mark.parametrize(("left", "right"), SIDES)
def test_random(left: str, right: str) -> None:
    check_drawn(products(left, right), FAST)


@pytest.mark.slow
@pytest.mark.parametrize(("left", "right"), SIDES)
def test_random_often(left: str, right: str) -> None:
    check_drawn(products(left, right), SLOW)
