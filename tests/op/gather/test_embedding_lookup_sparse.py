"""EMBEDDING_LOOKUP_SPARSE against LiteRT's own kernel."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest

from aot.relay.interpreter import evaluate
from tests.op._differential import FAST, OFTEN, SEEDS, Case, check, check_drawn, check_lowering, dims, main_of
from tests.op._one_op import Spec, const, draw_array, one_op


@st.composite
def embeddings(draw: st.DrawFn) -> Case:
    places, rest, rows = draw(dims(draw(st.integers(0, 2)), largest=3)), draw(dims(draw(st.integers(1, 2)), largest=3)), 4
    n, seed, combiner = draw(st.integers(1, 6)), draw(SEEDS), draw(st.integers(0, 2))
    rng, depth = np.random.default_rng(seed), len(places) + 1
    specs = [
        Spec((n,), "int32"),
        Spec((n, depth), "int32"),
        const([*places, 5]),
        Spec((n,), "float32"),
        Spec((rows, *rest), "float32"),
    ]
    model = one_op("EMBEDDING_LOOKUP_SPARSE", specs, [Spec((*places, *rest), "float32")], combiner=combiner)
    index = np.stack([rng.integers(0, p, n) for p in (*places, 5)], axis=1).astype(np.int32)
    if draw(st.booleans()):
        index = index[np.lexsort(index.T[::-1])]
    weights = rng.standard_normal(n).astype(np.float32)
    return model, [rng.integers(0, rows, n).astype(np.int32), index, weights, draw_array(seed, (rows, *rest), "float32")]


def test_random() -> None:
    check_drawn(embeddings(), FAST)


@pytest.mark.slow
def test_random_often() -> None:
    check_drawn(embeddings(), OFTEN)


def test_on_host() -> None:
    specs = [Spec((3,), "int32"), Spec((3, 2), "int32"), const([2, 2]), Spec((3,), "float32"), Spec((3, 2), "float32")]
    places, weights = np.array([[0, 0], [1, 0], [1, 1]], np.int32), np.array([1, 2, 4], np.float32)
    for combiner in range(3):
        model = one_op("EMBEDDING_LOOKUP_SPARSE", specs, [Spec((2, 2), "float32")], combiner=combiner)
        check(model, [np.array([2, 0, 1], np.int32), places, weights, draw_array(0, (3, 2), "float32")], host=True)


def test_what_lies_outside_is_left_out() -> None:
    """The reference stops with an error, or is undefined; here no access may leave a tensor."""
    specs = [Spec((3,), "int32"), Spec((3, 2), "int32"), const([2, 2]), Spec((3,), "float32"), Spec((3, 1), "float32")]
    model = one_op("EMBEDDING_LOOKUP_SPARSE", specs, [Spec((2, 1), "float32")], combiner=1)
    table = np.arange(1, 4, dtype=np.float32).reshape(3, 1)
    data = [np.array([3, -1, 1], np.int32), np.array([[0, 0], [0, 0], [1, 0]], np.int32), np.ones(3, np.float32), table]
    for at in (np.array([1, 0], np.int32), np.array([2, 0], np.int32), np.array([-1, 0], np.int32)):
        data[1][2] = at
        found = evaluate(main_of(model), data)
        assert found[0].ravel().tolist() == [0, 2 if at[0] == 1 else 0]
        check_lowering(main_of(model), [data], [found], host=True)
