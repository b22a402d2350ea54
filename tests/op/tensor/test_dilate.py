"""DILATE and STABLEHLO_PAD against the reference's kernels."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest

from aot.errors import AotError
from tests.op._differential import FAST, OFTEN, SEEDS, Case, check_drawn, dims, main_of
from tests.op._one_op import EVERY, Spec, const, draw_array, one_op, same_quant


@st.composite
def dilations(draw: st.DrawFn) -> Case:
    shape = draw(dims(draw(st.integers(1, 3)), largest=4))
    factors, dtype, seed = draw(dims(len(shape), largest=3)), draw(st.sampled_from(EVERY)), draw(SEEDS)
    result = tuple((n - 1) * d + 1 for n, d in zip(shape, factors, strict=True))
    quant = same_quant(dtype)
    between = Spec((), dtype, quant, draw_array(seed + 1, (), dtype))
    model = one_op("DILATE", [Spec(shape, dtype, quant), const(factors), between], [Spec(result, dtype, quant)])
    return model, [draw_array(seed, shape, dtype)]


@st.composite
def pads(draw: st.DrawFn) -> Case:
    shape = draw(dims(draw(st.integers(1, 3)), largest=4))
    inner, seed, dtype = [draw(st.integers(0, 2)) for _ in shape], draw(SEEDS), draw(st.sampled_from(EVERY))
    sizes = [(n - 1) * (i + 1) + 1 for n, i in zip(shape, inner, strict=True)]
    low = [draw(st.integers(-((n - 1) // 2), 3)) for n in sizes]
    high = [draw(st.integers(-((n - 1) // 2), 3)) for n in sizes]
    result = tuple(n + a + z for n, a, z in zip(sizes, low, high, strict=True))
    quant = same_quant(dtype)
    between = Spec((), dtype, quant, draw_array(seed + 1, (), dtype))
    options = {"edge_padding_low": low, "edge_padding_high": high, "interior_padding": inner}
    model = one_op("STABLEHLO_PAD", [Spec(shape, dtype, quant), between], [Spec(result, dtype, quant)],
                   **{k: np.array(v, np.int64) for k, v in options.items()})  # fmt: skip
    return model, [draw_array(seed, shape, dtype)]


def test_random() -> None:
    check_drawn(dilations(), FAST)


@pytest.mark.slow
def test_random_often() -> None:
    check_drawn(dilations(), OFTEN)


def test_random_pads() -> None:
    check_drawn(pads(), FAST)


@pytest.mark.slow
def test_random_pads_often() -> None:
    check_drawn(pads(), OFTEN)


def test_refused() -> None:
    row = Spec((4,), "float32")
    with pytest.raises(AotError, match="E1122"):
        main_of(one_op("DILATE", [row, const([0]), const(0.0, "float32")], [row]))
