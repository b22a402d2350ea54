"""HASHTABLE_LOOKUP against LiteRT's own kernel."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest

from aot.errors import AotError
from tests.op._differential import FAST, OFTEN, SEEDS, Case, check, check_drawn, dims, main_of
from tests.op._one_op import EVERY, Spec, const, draw_array, one_op, same_quant


@st.composite
def tables(draw: st.DrawFn) -> Case:
    n, size, rest = draw(st.integers(1, 6)), draw(st.integers(1, 9)), draw(dims(draw(st.integers(0, 2)), largest=3))
    dtype, seed = draw(st.sampled_from(EVERY)), draw(SEEDS)
    rng, quant = np.random.default_rng(seed), same_quant(dtype)
    keys = np.sort(rng.integers(-6, 7, size)).astype(np.int32)
    fixed = draw(st.booleans())
    operands = [Spec((n,), "int32"), const(keys) if fixed else Spec((size,), "int32"), Spec((size, *rest), dtype, quant)]
    model = one_op("HASHTABLE_LOOKUP", operands, [Spec((n, *rest), dtype, quant), Spec((n,), "uint8")])
    sought = rng.integers(-8, 9, n).astype(np.int32)
    return model, [sought, *([] if fixed else [keys]), draw_array(seed, (size, *rest), dtype)]


def test_random() -> None:
    check_drawn(tables(), FAST)


@pytest.mark.slow
def test_random_often() -> None:
    check_drawn(tables(), OFTEN)


def test_on_host() -> None:
    row = Spec((3, 2), "int8", same_quant("int8"))
    results = [Spec((4, 2), "int8", row.quant), Spec((4,), "uint8")]
    model = one_op("HASHTABLE_LOOKUP", [Spec((4,), "int32"), const([-3, 1, 9]), row], results)
    check(model, [np.array([9, 2, -3, 1], np.int32), np.arange(6, dtype=np.int8).reshape(3, 2)], host=True)


def test_refused() -> None:
    rows = Spec((3, 2), "float32")
    with pytest.raises(AotError, match="E1207"):
        main_of(one_op("HASHTABLE_LOOKUP", [Spec((2,), "int32"), const([1, 2]), rows], [rows, Spec((2,), "uint8")]))
