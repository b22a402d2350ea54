"""BUCKETIZE against the reference's kernel."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest

from aot.errors import AotError
from tests.op._differential import FAST, OFTEN, SEEDS, Case, check, check_drawn, dims, main_of
from tests.op._one_op import Spec, draw_array, one_op


@st.composite
def buckets(draw: st.DrawFn) -> Case:
    shape, dtype, seed = draw(dims(2)), draw(st.sampled_from(["int32", "int64", "float32"])), draw(SEEDS)
    rng = np.random.default_rng(seed)
    boundaries = np.sort(np.round(rng.normal(size=draw(st.integers(1, 9))) * 8).astype(np.float32))
    model = one_op("BUCKETIZE", [Spec(shape, dtype)], [Spec(shape, "int32")], boundaries=[float(v) for v in boundaries])
    near = np.asarray(np.round(rng.normal(size=shape) * 10), dtype)
    return model, [near if draw(st.booleans()) else draw_array(seed, shape, dtype)]


def test_random() -> None:
    check_drawn(buckets(), FAST)


@pytest.mark.slow
def test_random_often() -> None:
    check_drawn(buckets(), OFTEN)


def test_on_host() -> None:
    check(one_op("BUCKETIZE", [Spec((5,), "int64")], [Spec((5,), "int32")], boundaries=[-1.0, 0.5]), host=True)


def test_refused() -> None:
    row = Spec((4,), "float32")
    with pytest.raises(AotError, match="E1122"):
        main_of(one_op("BUCKETIZE", [row], [Spec((4,), "int32")], boundaries=[2.0, 1.0]))
