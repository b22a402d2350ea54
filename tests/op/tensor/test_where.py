"""WHERE and UNIQUE of constants."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest

from aot.errors import AotError
from aot.op.tensor.where import UNIQUE_TYPES, WHERE_TYPES
from tests.op._differential import FEW, OFTEN, SEEDS, check_drawn, dims, main_of
from tests.op._one_op import Spec, const, one_op

TYPES = [("WHERE", t) for t in WHERE_TYPES.split()] + [("UNIQUE", t) for t in UNIQUE_TYPES.split()]


@st.composite
def cases(draw: st.DrawFn, name: str, dtype: str) -> bytes:
    """Few different values, so that some are 0 and some are equal; of floats both zeros and the smallest numbers."""
    rng = np.random.default_rng(draw(SEEDS))
    shape = draw(dims(1 if name == "UNIQUE" else draw(st.integers(1, 4)), largest=40 if name == "UNIQUE" else 4))
    few = rng.integers(0, draw(st.integers(2, 9)), shape)
    if dtype == "float32":
        data = np.array([0.0, -0.0, 1e-45, 1.5, -2.0, np.inf, 7.0, -np.inf, 3.0], np.float32)[few]
    else:
        data = (few - (np.dtype(dtype).kind == "i")).astype(dtype)
    if name == "WHERE":
        data.flat[draw(st.integers(0, data.size - 1))] = 1
        return one_op(name, [const(data, dtype)], [Spec(np.argwhere(data != 0).shape, "int64")])
    index = draw(st.sampled_from(["int32", "int64"]))
    results = [Spec((len(set(data.tolist())),), dtype), Spec(shape, index)]
    return one_op(name, [const(data, dtype)], results, idx_out_type=index.upper())


@pytest.mark.parametrize("name", ["WHERE", "UNIQUE"])
def test_random(name: str) -> None:
    check_drawn(st.sampled_from([t for n, t in TYPES if n == name]).flatmap(lambda t: cases(name, t)), FEW)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dtype"), TYPES)
def test_random_often(name: str, dtype: str) -> None:
    check_drawn(cases(name, dtype), OFTEN)


@pytest.mark.parametrize("name", ["WHERE", "UNIQUE"])
def test_at_run_time(name: str) -> None:
    results = [Spec((2, 1), "int64")] if name == "WHERE" else [Spec((2,), "int32"), Spec((3,), "int32")]
    with pytest.raises(AotError, match="E1213"):
        main_of(one_op(name, [Spec((3,), "int32")], results))


@pytest.mark.parametrize(
    "model",
    [
        one_op("WHERE", [const([0, 0])], [Spec((0, 1), "int64")]),
        one_op("UNIQUE", [const([np.nan], "float32")], [Spec((1,), "float32"), Spec((1,), "int32")]),
    ],
)
def test_refused(model: bytes) -> None:
    with pytest.raises(AotError, match="E1203"):
        main_of(model)
