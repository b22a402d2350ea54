"""DENSIFY: sparse constants of every layout have their zeros again."""

from __future__ import annotations

from itertools import product
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from aot.errors import AotError
from aot.frontend.tflite.view import SparseDim, SparsityError, SparsityView, to_dense
from aot.testing import ModelBuilder, Sparsity
from tests.op._differential import FAST, SEEDS, SLOW, check, main_of

Array = np.ndarray[Any, Any]


def encode(dense: Array, order: tuple[int, ...], blocks: dict[int, int], sparse: set[int]) -> tuple[Array, Sparsity]:
    """The stored values and their layout; `blocks`: dimension -> size of its blocks, `sparse`: levels without zeros."""
    rank, block_map = dense.ndim, tuple(blocks)
    extents = [*(n // blocks.get(d, 1) for d, n in enumerate(dense.shape)), *blocks.values()]

    def element(at: dict[int, int]) -> Any:
        index = [at[d] * blocks[d] + at[rank + block_map.index(d)] if d in blocks else at[d] for d in range(rank)]
        return dense[tuple(index)]

    def is_zero(at: dict[int, int]) -> bool:
        free = [level for level in range(len(extents)) if level not in at]
        places = product(*(range(extents[level]) for level in free))
        return not any(element(at | dict(zip(free, place, strict=True))) for place in places)

    nodes: list[dict[int, int]] = [{}]
    levels: list[int | tuple[list[int], list[int]]] = []
    for level in order:
        children = [[node | {level: i} for i in range(extents[level])] for node in nodes]
        if level in sparse:
            children = [[c for c in group if not is_zero(c)] for group in children]
            segments = np.cumsum([0, *map(len, children)]).tolist()
            levels.append((segments, [c[level] for group in children for c in group]))
        else:
            levels.append(extents[level])
        nodes = [c for group in children for c in group]
    return np.array([element(n) for n in nodes], dense.dtype), Sparsity(order, block_map, tuple(levels))


@st.composite
def cases(draw: st.DrawFn) -> tuple[Array, tuple[int, ...], dict[int, int], set[int]]:
    rank = draw(st.integers(1, 4))
    blocks = {d: draw(st.sampled_from([2, 3])) for d in range(rank) if draw(st.booleans())}
    shape = [draw(st.integers(1, 3)) * blocks.get(d, 1) for d in range(rank)]
    levels = list(range(rank + len(blocks)))
    order = tuple(draw(st.permutations(levels)))
    sparse = {level for level in range(rank) if draw(st.booleans())}  # blocks are always whole
    rng = np.random.default_rng(draw(SEEDS))
    dtype = draw(st.sampled_from(["int8", "float16", "float32"]))
    dense = rng.integers(-99, 99, shape) * (rng.random(shape) < 0.4)
    return dense.astype(dtype), order, blocks, sparse


def model(values: Array, layout: Sparsity, shape: tuple[int, ...]) -> bytes:
    """The constant, dense, as a result of its own; of float16 as float32."""
    b = ModelBuilder()
    dtype = str(values.dtype)
    quant = {"scale": 0.5, "zero_point": 0} if dtype == "int8" else {}
    stored = b.tensor("s", shape, dtype, data=values, sparsity=layout, **quant)  # type: ignore[arg-type]
    dense = b.tensor("d", shape, dtype, **quant)  # type: ignore[arg-type]
    b.op("DENSIFY", [stored], [dense])
    x, y = b.tensor("x", shape, "float32"), b.tensor("y", shape, "float32")
    if dtype != "float32":
        dense, narrow = b.tensor("w", shape, "float32"), dense
        b.op("DEQUANTIZE", [narrow], [dense], version=3)
    b.op("MAXIMUM", [x, dense], [y])
    return b.build([x], [y])


def run(examples: Any) -> None:
    @given(cases())
    @examples
    def test(case: tuple[Array, tuple[int, ...], dict[int, int], set[int]]) -> None:
        dense, order, blocks, sparse = case
        values, layout = encode(dense, order, blocks, sparse)
        view = SparsityView(order, tuple(blocks), tuple(map(dimension, layout.levels)))
        assert to_dense(values, dense.shape, view).tobytes() == dense.tobytes()
        if values.size:  # a buffer without bytes is no constant
            assert main_of(model(values, layout, dense.shape)) is not None

    test()


def dimension(level: int | tuple[Any, Any]) -> SparseDim:
    if isinstance(level, int):
        return SparseDim("DENSE", level, np.empty(0, np.int64), np.empty(0, np.int64))
    segments, indices = (np.asarray(v, np.int64) for v in level)
    return SparseDim("SPARSE_CSR", 0, segments, indices)


def test_every_layout() -> None:
    run(FAST)


@pytest.mark.slow
def test_every_layout_often() -> None:
    run(SLOW)


@st.composite
def matrices(draw: st.DrawFn) -> bytes:
    """What the reference's own converter writes: rows dense, columns sparse, alone or in blocks of four columns."""
    rows, columns = draw(st.integers(1, 5)), 4 * draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(SEEDS))
    dense = np.asarray(rng.integers(1, 99, (rows, columns)), draw(st.sampled_from(["int8", "float16", "float32"])))
    keep = np.repeat(rng.random((rows, columns // 4)) < 0.5, 4, axis=1)
    keep[0, :4] = True
    blocks = {1: 4} if draw(st.booleans()) else {}
    values, layout = encode(dense * keep, (0, 1, 2) if blocks else (0, 1), blocks, {1})
    return model(values.astype(dense.dtype), layout, dense.shape)


def run_matrices(examples: Any) -> None:
    @given(matrices())
    @examples
    def test(data: bytes) -> None:
        check(data)

    test()


def test_against_the_reference() -> None:
    run_matrices(FAST)


@pytest.mark.slow
def test_against_the_reference_often() -> None:
    run_matrices(SLOW)


@pytest.mark.parametrize(
    ("order", "blocks", "levels"),
    [
        ((0, 0), (), (2, 4)),
        ((0, 1), (), (2, 5)),
        ((0, 1), (), (2, ([0, 1], [0]))),
        ((0, 1), (), (2, ([0, 2, 1], [0, 1]))),
        ((0, 1), (), (2, ([0, 1, 2], [0, 9]))),
        ((0, 1), (), (2, ([0, 1, 2], [0, -1]))),
        ((0, 1), (), (2, ([1, 2, 2], [0, 1]))),
        ((0, 1, 2), (1,), (2, ([0, 1, 1], [0]), 3)),
        ((0, 1, 2), (7,), (2, ([0, 1, 1], [0]), 2)),
        ((0, 1, 2), (1,), (2, ([0, 1, 1], [0]), 0)),
        ((0, 1), (), (2, ([0, 3, 3], [0, 1, 2]))),
    ],
)
def test_contradictions(order: tuple[int, ...], blocks: tuple[int, ...], levels: tuple[Any, ...]) -> None:
    """Two stored values of a [2, 4] matrix."""
    with pytest.raises(SparsityError):
        to_dense(np.ones(2, np.float32), (2, 4), SparsityView(order, blocks, tuple(map(dimension, levels))))
    with pytest.raises(AotError, match=r"E1\d\d\d"):
        main_of(model(np.ones(2, np.float32), Sparsity(order, blocks, levels), (2, 4)))
