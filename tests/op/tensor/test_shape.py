"""SHAPE, RANK, RANGE, BROADCAST_ARGS."""

from __future__ import annotations

import numpy as np
import pytest

from aot.errors import AotError
from tests.op._differential import check, main_of
from tests.op._one_op import MOVABLE, Spec, const, one_op, same_quant


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
