"""SPACE_TO_DEPTH, DEPTH_TO_SPACE, SPACE_TO_BATCH_ND, BATCH_TO_SPACE_ND."""

from __future__ import annotations

from math import prod

import hypothesis.strategies as st
import pytest
from hypothesis import given

from aot.errors import AotError
from tests.op._differential import FAST, SEEDS, SLOW, check, dims, main_of
from tests.op._one_op import EVERY, const, moving


@st.composite
def depths(draw: st.DrawFn, name: str = "") -> bytes:
    """Of that operator, or of either."""
    n, h, w, c = draw(dims(4, largest=3))
    b = draw(st.integers(1, 3))
    shapes = [(n, h * b, w * b, c), (n, h, w, c * b * b)]
    dtype = draw(st.sampled_from(EVERY))
    name = name or draw(st.sampled_from(["DEPTH_TO_SPACE", "SPACE_TO_DEPTH"]))
    if name == "SPACE_TO_DEPTH":
        return moving("SPACE_TO_DEPTH", dtype, shapes, block_size=b)
    return moving("DEPTH_TO_SPACE", dtype, shapes[::-1], block_size=b)


@st.composite
def batches(draw: st.DrawFn, name: str = "") -> bytes:
    """Of that operator, or of either."""
    rank = draw(st.integers(1, 2))
    space, blocks = draw(dims(rank, largest=4)), draw(dims(rank, largest=3))
    batch, channels = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    dtype = draw(st.sampled_from(EVERY))
    small = (batch * prod(blocks), *space, channels)
    pairs = [(draw(st.integers(0, n * b - 1)), 0) for n, b in zip(space, blocks, strict=True)]
    pairs = [(first, draw(st.integers(0, n * b - 1 - first))) for (first, _), n, b in zip(pairs, space, blocks, strict=True)]
    large = (batch, *(n * b - sum(p) for n, b, p in zip(space, blocks, pairs, strict=True)), channels)
    name = name or draw(st.sampled_from(["SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND"]))
    if name == "BATCH_TO_SPACE_ND":
        return moving("BATCH_TO_SPACE_ND", dtype, [small, large], [const(blocks), const(pairs)])
    return moving("SPACE_TO_BATCH_ND", dtype, [large, small], [const(blocks), const(pairs)])


@given(depths(), batches(), SEEDS)
@FAST
def test_random(depth: bytes, batch: bytes, seed: int) -> None:
    check(depth, seed=seed)
    check(batch, seed=seed)


@pytest.mark.slow
@given(depths(), batches(), SEEDS)
@SLOW
def test_random_often(depth: bytes, batch: bytes, seed: int) -> None:
    check(depth, seed=seed)
    check(batch, seed=seed)


def test_on_host() -> None:
    check(moving("SPACE_TO_DEPTH", "int8", [(1, 4, 6, 3), (1, 2, 3, 12)], block_size=2), host=True)
    check(moving("DEPTH_TO_SPACE", "uint8", [(1, 2, 3, 12), (1, 4, 6, 3)], block_size=2), host=True)
    blocks, pads = const([2, 2]), const([[1, 0], [2, 1]])
    check(moving("SPACE_TO_BATCH_ND", "int8", [(1, 3, 3, 2), (4, 2, 3, 2)], [blocks, pads]), host=True)
    check(moving("BATCH_TO_SPACE_ND", "int16", [(4, 2, 3, 2), (1, 3, 3, 2)], [blocks, pads]), host=True)


@pytest.mark.parametrize(
    "model",
    [
        moving("SPACE_TO_DEPTH", "int8", [(1, 3, 4, 1), (1, 1, 2, 4)], block_size=2),
        moving("DEPTH_TO_SPACE", "int8", [(1, 3, 4, 3), (1, 6, 8, 1)], block_size=2),
        moving("SPACE_TO_BATCH_ND", "int8", [(1, 3, 1), (2, 1, 1)], [const([2]), const([[0, 0]])]),
        moving("BATCH_TO_SPACE_ND", "int8", [(3, 3, 1), (2, 6, 1)], [const([2]), const([[0, 0]])]),
    ],
)
def test_refused(model: bytes) -> None:
    with pytest.raises(AotError, match="E1129"):
        main_of(model)
