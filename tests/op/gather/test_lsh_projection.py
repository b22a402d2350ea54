"""LSH_PROJECTION against LiteRT's own kernel."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest

from aot.errors import AotError
from tests.op._differential import FAST, OFTEN, SEEDS, Case, check, check_drawn, main_of
from tests.op._one_op import EVERY, Spec, draw_array, one_op


@st.composite
def projections(draw: st.DrawFn) -> Case:
    rows, bits, seed = draw(st.integers(1, 3)), draw(st.integers(1, 5)), draw(SEEDS)
    dtype, kind, weighted = draw(st.sampled_from(EVERY)), draw(st.sampled_from([1, 2])), draw(st.booleans())
    wide = np.dtype(dtype).itemsize
    item = draw(st.sampled_from([1, 2, 3, 5, 13, 28, 29, 60, 61, 124, 130])) // wide or 1
    items = Spec((draw(st.integers(1, 3)), item), dtype)
    weights = [Spec(items.shape[:1], "float32")] if weighted else []
    result = Spec((rows if kind == 1 else rows * bits,), "int32")
    model = one_op("LSH_PROJECTION", [Spec((rows, bits), "float32"), items, *weights], [result], type=kind)
    rng = np.random.default_rng(seed)
    data = [rng.standard_normal((rows, bits)).astype(np.float32), draw_array(seed, items.shape, dtype)]
    return model, [*data, *(rng.standard_normal(w.shape).astype(np.float32) for w in weights)]


def test_random() -> None:
    check_drawn(projections(), FAST)


@pytest.mark.slow
def test_random_often() -> None:
    check_drawn(projections(), OFTEN)


@pytest.mark.parametrize("size", [1, 4, 8, 13, 29, 61, 125])
def test_hashes_on_host(size: int) -> None:
    """Each way of FarmHash, by the length of seed and item."""
    specs = [Spec((2, 3), "float32"), Spec((2, size), "uint8"), Spec((2,), "float32")]
    check(one_op("LSH_PROJECTION", specs, [Spec((2,), "int32")], type=1), host=True)


def test_refused() -> None:
    rows, result = Spec((3, 2), "float32"), [Spec((2,), "int32")]
    for bits, kind, code in ((32, 1, "E1207"), (3, 0, "E1122")):
        with pytest.raises(AotError, match=code):
            main_of(one_op("LSH_PROJECTION", [Spec((2, bits), "float32"), rows], result, type=kind))
