"""PACK, FILL, ZEROS_LIKE, SHAPE, RANK, RANGE, BROADCAST_ARGS."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from aot.errors import AotError
from tests.op._differential import FAST, SEEDS, SLOW, check, dims, main_of
from tests.op._one_op import EVERY, MOVABLE, Spec, const, moving, one_op, same_quant


@st.composite
def packs(draw: st.DrawFn) -> bytes:
    shape = draw(dims(draw(st.integers(0, 3)), largest=4))
    count, axis = draw(st.integers(1, 4)), draw(st.integers(-len(shape) - 1, len(shape)))
    where = axis % (len(shape) + 1)
    dtype = draw(st.sampled_from(EVERY))
    data = Spec(shape, dtype, same_quant(dtype))
    result = Spec((*shape[:where], count, *shape[where:]), dtype, same_quant(dtype))
    return one_op("PACK", [data] * count, [result], values_count=count, axis=axis)


@given(packs(), SEEDS)
@FAST
def test_pack(model: bytes, seed: int) -> None:
    check(model, seed=seed)


@pytest.mark.slow
@given(packs(), SEEDS)
@SLOW
def test_pack_often(model: bytes, seed: int) -> None:
    check(model, seed=seed)


def test_pack_on_host() -> None:
    data = Spec((3, 2), "int16", same_quant("int16"))
    check(one_op("PACK", [data] * 3, [Spec((3, 3, 2), "int16", same_quant("int16"))], values_count=3, axis=1), host=True)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "bool", "float32"])
def test_fill(dtype: str) -> None:
    value, result = Spec((), dtype, same_quant(dtype)), Spec((2, 3), dtype, same_quant(dtype))
    check(one_op("FILL", [const([2, 3]), value], [result], version=4), host=True)


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32"])
def test_zeros_like(dtype: str) -> None:
    check(moving("ZEROS_LIKE", dtype, [(2, 300), (2, 300)]), host=dtype == "int32")


@pytest.mark.parametrize("dtype", MOVABLE)
def test_shape_and_rank(dtype: str) -> None:
    data = Spec((4, 1, 7), dtype, same_quant(dtype))
    check(one_op("SHAPE", [data], [Spec((3,), "int32")], out_type="INT32"))
    check(one_op("SHAPE", [data], [Spec((3,), "int64")], out_type="INT64"))
    check(one_op("RANK", [data], [Spec((), "int32")]))


@pytest.mark.parametrize(
    ("numbers", "dtype", "count"),
    [((0, 7, 2), "int32", 4), ((5, -4, -3), "int64", 3), ((0.5, 2.1, 0.3), "float32", 6)],
)
def test_range(numbers: tuple[float, float, float], dtype: str, count: int) -> None:
    operands = [const(np.array(n, dtype), dtype) for n in numbers]
    found = check(_with_an_input(operands, Spec((count,), dtype)))
    assert found[0][0].shape == (count,)


def _with_an_input(operands: list[Spec], result: Spec) -> bytes:
    """A model needs an input, although RANGE does not."""
    from aot.testing import ModelBuilder

    b = ModelBuilder()
    x, z = b.tensor("x", (1,), "float32"), b.tensor("z", (1,), "int32")
    b.op("SHAPE", [x], [z], out_type="INT32")
    sources = [b.tensor(f"c{i}", s.shape, s.dtype, data=s.data) for i, s in enumerate(operands)]
    y = b.tensor("y", result.shape, result.dtype)
    b.op("RANGE", sources, [y])
    return b.build([x], [y, z])


def test_range_of_another_length() -> None:
    with pytest.raises(AotError, match="E1120"):
        main_of(_with_an_input([const(0), const(9), const(2)], Spec((4,), "int32")))


@pytest.mark.parametrize(("a", "b", "shape"), [([2, 1], [1, 3], [2, 3]), ([4], [2, 1], [2, 4])])
def test_broadcast_args(a: list[int], b: list[int], shape: list[int]) -> None:
    from aot.testing import ModelBuilder

    builder = ModelBuilder()
    x = builder.tensor("x", (1, 1), "float32")
    sources = [builder.tensor(f"c{i}", (len(s),), "int32", data=np.array(s, np.int32)) for i, s in enumerate((a, b))]
    found, y = builder.tensor("s", (2,), "int32"), builder.tensor("y", shape, "float32")
    builder.op("BROADCAST_ARGS", sources, [found])
    builder.op("BROADCAST_TO", [x, found], [y], version=2)
    check(builder.build([x], [y, found]))
