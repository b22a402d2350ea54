"""WHERE and UNIQUE of constants."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest

from aot.errors import AotError
from aot.frontend.tflite.tensor import UNIQUE_TYPES, WHERE_TYPES
from aot.testing import ModelBuilder
from tests.op._differential import FEW, OFTEN, SEEDS, check, check_drawn, dims, main_of
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


@pytest.mark.parametrize("zeros", [[], [1], [0, 2]])
def test_a_shape_whose_zeros_are_looked_up(zeros: list[int]) -> None:
    """What converters make of a reshape by ONNX: extents of 0 are those of the operand; mostly there are none."""
    b, n = ModelBuilder(), len(zeros)
    x, y = b.tensor("x", (2, 3, 4), "float32"), b.tensor("y", (2, 3, 4), "float32")
    wanted = np.array([0 if i in zeros else extent for i, extent in enumerate((2, 3, 4))], np.int64)
    values = {"shape": np.array([2, 3, 4]), "given": wanted, "rank": np.array([3]), "zero": np.array(0)}
    shape, given, rank, zero = (b.tensor(name, a.shape, "int64", data=a) for name, a in values.items())
    flat = b.tensor("flat", (1,), "int32", data=np.array([-1], np.int32))
    chosen, places, axes = b.tensor("c", (3,), "bool"), b.tensor("p", (n, 1), "int64"), b.tensor("a", (n,), "int64")
    found, dense, whole = b.tensor("f", (n,), "int64"), b.tensor("d", (3,), "int64"), b.tensor("w", (3,), "int64")
    extents = b.tensor("e", (3,), "int32")
    b.op("EQUAL", [given, zero], [chosen])
    b.op("WHERE", [chosen], [places])
    b.op("RESHAPE", [places, flat], [axes])
    b.op("GATHER", [shape, axes], [found], axis=0)
    b.op("SPARSE_TO_DENSE", [places, rank, found, zero], [dense], validate_indices=False)
    b.op("ADD", [given, dense], [whole])
    b.op("CAST", [whole], [extents])
    b.op("RESHAPE", [x, extents], [y])
    check(b.build([x], [y]))


@pytest.mark.parametrize("name", ["WHERE", "UNIQUE"])
def test_at_run_time(name: str) -> None:
    results = [Spec((2, 1), "int64")] if name == "WHERE" else [Spec((2,), "int32"), Spec((3,), "int32")]
    with pytest.raises(AotError, match="E1213"):
        main_of(one_op(name, [Spec((3,), "int32")], results))


@pytest.mark.parametrize(
    "model",
    [
        one_op("WHERE", [const(1)], [Spec((1, 0), "int64")]),
        one_op("UNIQUE", [const([np.nan], "float32")], [Spec((1,), "float32"), Spec((1,), "int32")]),
    ],
)
def test_refused(model: bytes) -> None:
    with pytest.raises(AotError, match="E1203"):
        main_of(model)
