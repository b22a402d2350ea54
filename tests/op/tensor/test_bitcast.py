"""BITCAST to elements of any size."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest

from tests.op._differential import FAST, check, check_drawn, dims
from tests.op._one_op import Spec, one_op


@st.composite
def bitcasts(draw: st.DrawFn) -> bytes:
    """To a type of the same width, half of it, or twice."""
    widths = {"int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "float32": 4}
    source, result = draw(st.sampled_from(sorted(widths))), draw(st.sampled_from(sorted(widths)))
    shape, ratio = draw(dims(draw(st.integers(1, 3)))), widths[source] / widths[result]
    if ratio >= 1:
        return one_op("BITCAST", [Spec(shape, source)], [Spec(shape if ratio == 1 else (*shape, int(ratio)), result)])
    return one_op("BITCAST", [Spec((*shape, int(1 / ratio)), source)], [Spec(shape, result)])


def test_random() -> None:
    check_drawn(bitcasts(), FAST)


@pytest.mark.parametrize(
    ("shape", "dtype", "result", "as_dtype"), [((3,), "int16", (3, 2), "int8"), ((2, 4), "uint8", (2,), "int32")]
)
def test_splits_and_joins(shape: tuple[int, ...], dtype: str, result: tuple[int, ...], as_dtype: str) -> None:
    check(one_op("BITCAST", [Spec(shape, dtype)], [Spec(result, as_dtype)]), host=True)
