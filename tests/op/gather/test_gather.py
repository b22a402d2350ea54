"""STABLEHLO_GATHER against LiteRT's own kernel."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest

from aot.errors import AotError
from tests.op._differential import FAST, OFTEN, SEEDS, Case, check, check_drawn, dims, main_of
from tests.op._one_op import EVERY, Spec, draw_array, one_op
from tests.op.gather._models import codes, numbers

INDEX = st.sampled_from(["int32", "int64"])


def placed(draw: st.DrawFn, size: int, among: int) -> list[int]:
    """`size` of the numbers below `among`, in order."""
    return sorted(draw(st.permutations(range(among)))[:size])


@st.composite
def gathers(draw: st.DrawFn) -> Case:
    shape = draw(dims(draw(st.integers(1, 3)), largest=5))
    rank, seed = len(shape), draw(SEEDS)
    start = draw(st.permutations(range(rank)))[: draw(st.integers(0, rank))]
    collapsed = placed(draw, draw(st.integers(0, rank)), rank)
    sizes = [1 if d in collapsed else draw(st.integers(1, n)) for d, n in enumerate(shape)]
    batch = draw(dims(draw(st.integers(0, 2)), largest=3))
    vector = draw(st.integers(0, len(batch)))
    index_shape = (*batch[:vector], len(start), *batch[vector:])
    if not start:
        start, index_shape = [0], (*batch[:vector], 1, *batch[vector:])
    kept = [sizes[d] for d in range(rank) if d not in collapsed]
    offsets = placed(draw, len(kept), len(kept) + len(batch))
    parts, rest = iter(kept), iter(batch)
    result = tuple(next(parts if d in offsets else rest) for d in range(len(kept) + len(batch)))
    dtype, kind = draw(st.sampled_from(EVERY)), draw(INDEX)
    attributes = {"offset_dims": offsets, "collapsed_slice_dims": collapsed, "start_index_map": start, "slice_sizes": sizes}
    model = one_op(
        "STABLEHLO_GATHER",
        [codes(shape, dtype), Spec(index_shape, kind)],
        [codes(result, dtype)],
        index_vector_dim=vector,
        indices_are_sorted=False,
        **{k: numbers(v) for k, v in attributes.items()},
    )
    return model, [draw_array(seed, shape, dtype), np.asarray(np.random.default_rng(seed).integers(-2, 7, index_shape), kind)]


def test_random() -> None:
    check_drawn(gathers(), FAST)


@pytest.mark.slow
def test_random_often() -> None:
    check_drawn(gathers(), OFTEN)


def test_on_host() -> None:
    vectors = np.array([[[1, 0], [9, -3]], [[2, 2], [0, 1]]], np.int64)
    attributes = {"offset_dims": [2], "collapsed_slice_dims": [0], "start_index_map": [0, 1], "slice_sizes": [1, 2]}
    gathered = [Spec((2, 2, 2), "float32")]
    model = one_op("STABLEHLO_GATHER", [Spec((3, 4), "float32"), Spec((2, 2, 2), "int64")], gathered, index_vector_dim=2,
                   **{k: numbers(v) for k, v in attributes.items()})  # fmt: skip
    check(model, [draw_array(0, (3, 4), "float32"), vectors], host=True)


def test_refused() -> None:
    row = Spec((4,), "float32")
    model = one_op("STABLEHLO_GATHER", [row, Spec((2, 1), "int32")], [row], slice_sizes=numbers([5]), index_vector_dim=1)
    with pytest.raises(AotError, match="E1207"):
        main_of(model)
