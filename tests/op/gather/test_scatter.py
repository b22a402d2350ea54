"""STABLEHLO_SCATTER against LiteRT's own kernel."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest

from aot.errors import AotError
from aot.relay.interpreter import evaluate
from tests.op._differential import FAST, OFTEN, SEEDS, Case, check, check_drawn, check_lowering, dims, main_of
from tests.op._one_op import EVERY, Spec, draw_array
from tests.op.gather._models import SCATTERS, codes, numbers, scatter
from tests.op.gather.test_gather import INDEX, placed


@st.composite
def scatters(draw: st.DrawFn) -> Case:
    shape = draw(dims(draw(st.integers(1, 3)), largest=4))
    rank, seed = len(shape), draw(SEEDS)
    index_map = draw(st.permutations(range(rank)))[: draw(st.integers(1, rank))]
    inserted = placed(draw, draw(st.integers(0, rank)), rank)
    batch = draw(dims(draw(st.integers(0, 2)), largest=3))
    vector = draw(st.integers(0, len(batch)))
    index_shape = (*batch[:vector], len(index_map), *batch[vector:])
    sizes = [draw(st.integers(1, shape[d])) for d in range(rank) if d not in inserted]
    window = placed(draw, len(sizes), len(sizes) + len(batch))
    parts, rest = iter(sizes), iter(batch)
    updates = tuple(next(parts if d in window else rest) for d in range(len(sizes) + len(batch)))
    dtype = draw(st.sampled_from(EVERY))
    kind, how = draw(INDEX), draw(st.sampled_from(list(SCATTERS)))
    model = scatter(
        codes(shape, dtype),
        Spec(index_shape, kind),
        codes(updates, dtype),
        kind=how,
        update_window_dims=numbers(window),
        inserted_window_dims=numbers(inserted),
        scatter_dims_to_operand_dims=numbers(index_map),
        index_vector_dim=vector,
    )
    places = np.asarray(np.random.default_rng(seed).integers(-1, 5, index_shape), kind)
    pair = [draw_array(seed + i, s, dtype) for i, s in enumerate((shape, updates))]
    if how in ("add", "multiply") and dtype in ("int32", "int64"):  # the reference's sums and products must not overflow
        pair = [np.asarray(a % 2, dtype) for a in pair]
    return model, [pair[0], places, pair[1]]


def test_random() -> None:
    check_drawn(scatters(), FAST)


@pytest.mark.slow
def test_random_often() -> None:
    check_drawn(scatters(), OFTEN)


@pytest.mark.slow
def test_on_host() -> None:
    vectors = np.array([[[1, 0], [9, -3]], [[2, 2], [0, 1]]], np.int64)
    wheres = {"update_window_dims": [2], "inserted_window_dims": [0], "scatter_dims_to_operand_dims": [0, 1]}
    for kind in SCATTERS:
        for dtype in ("int8", "float16", "float32", "bool", "uint16"):
            operands = codes((3, 4), dtype), Spec((2, 2, 2), "int64"), codes((2, 2, 2), dtype)
            model = scatter(*operands, kind=kind, index_vector_dim=2, **{k: numbers(v) for k, v in wheres.items()})
            check(model, [draw_array(0, (3, 4), dtype), vectors, draw_array(1, (2, 2, 2), dtype)], host=True)


def test_places_far_outside() -> None:
    """Sums of a start and an offset do not overflow into the tensor."""
    wheres = {"update_window_dims": [1], "inserted_window_dims": [], "scatter_dims_to_operand_dims": [0]}
    model = scatter(Spec((4,), "float32"), Spec((4, 1), "int64"), Spec((4, 2), "float32"), kind="update", index_vector_dim=1,
                    **{k: numbers(v) for k, v in wheres.items()})  # fmt: skip
    starts = np.array([[2**63 - 1], [-(2**63)], [-1], [3]], np.int64)
    data = [np.zeros(4, np.float32), starts, np.arange(1, 9, dtype=np.float32).reshape(4, 2)]
    found = evaluate(main_of(model), data)
    assert found[0].tolist() == [6, 0, 0, 7]
    check_lowering(main_of(model), [data], [found], host=True)


def test_refused() -> None:
    row = Spec((4,), "float32")
    with pytest.raises(AotError, match="E1207"):
        main_of(scatter(row, Spec((1, 2), "int32"), Spec((1,), "float32"), kind="add", index_vector_dim=1))
