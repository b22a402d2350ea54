"""SPACE_TO_DEPTH, DEPTH_TO_SPACE, SPACE_TO_BATCH_ND, BATCH_TO_SPACE_ND, MIRROR_PAD, DYNAMIC_UPDATE_SLICE."""

from __future__ import annotations

from math import prod
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from aot.errors import AotError
from tests.op._differential import FAST, SEEDS, SLOW, check, dims, main_of
from tests.op._one_op import EVERY, Spec, const, draw_array, moving, one_op, same_quant


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


@st.composite
def mirrors(draw: st.DrawFn) -> bytes:
    shape = draw(dims(draw(st.integers(1, 4)), largest=4))
    mode = draw(st.sampled_from(["REFLECT", "SYMMETRIC"]))
    most = [n - (mode == "REFLECT") for n in shape]
    pads = [(draw(st.integers(0, m)), draw(st.integers(0, m))) for m in most]
    result = [n + sum(p) for n, p in zip(shape, pads, strict=True)]
    return moving("MIRROR_PAD", draw(st.sampled_from(EVERY)), [shape, result], [const(pads)], mode=mode)


@st.composite
def updates(draw: st.DrawFn) -> tuple[bytes, list[Any]]:
    shape = draw(dims(draw(st.integers(1, 4)), largest=4))
    part = tuple(draw(st.integers(1, n)) for n in shape)
    dtype, index = draw(st.sampled_from(EVERY)), draw(st.sampled_from(["int32", "int64"]))
    start = np.array([draw(st.integers(-2, n + 2)) for n in shape], index)
    data, update = (Spec(s, dtype, same_quant(dtype)) for s in (shape, part))
    model = one_op("DYNAMIC_UPDATE_SLICE", [data, update, Spec(start.shape, index)], [data])
    seed = draw(SEEDS)
    return model, [draw_array(seed, shape, dtype), draw_array(seed + 1, part, dtype), start]


@given(depths(), batches(), mirrors(), updates(), SEEDS)
@FAST
def test_random(depth: bytes, batch: bytes, mirror: bytes, update: Any, seed: int) -> None:
    check(depth, seed=seed)
    check(batch, seed=seed)
    check(mirror, seed=seed)
    check(update[0], update[1])


@pytest.mark.slow
@given(depths(), batches(), mirrors(), updates(), SEEDS)
@SLOW
def test_random_often(depth: bytes, batch: bytes, mirror: bytes, update: Any, seed: int) -> None:
    check(depth, seed=seed)
    check(batch, seed=seed)
    check(mirror, seed=seed)
    check(update[0], update[1])


def test_on_host() -> None:
    check(moving("SPACE_TO_DEPTH", "int8", [(1, 4, 6, 3), (1, 2, 3, 12)], block_size=2), host=True)
    check(moving("DEPTH_TO_SPACE", "uint8", [(1, 2, 3, 12), (1, 4, 6, 3)], block_size=2), host=True)
    blocks, pads = const([2, 2]), const([[1, 0], [2, 1]])
    check(moving("SPACE_TO_BATCH_ND", "int8", [(1, 3, 3, 2), (4, 2, 3, 2)], [blocks, pads]), host=True)
    check(moving("BATCH_TO_SPACE_ND", "int16", [(4, 2, 3, 2), (1, 3, 3, 2)], [blocks, pads]), host=True)
    check(moving("MIRROR_PAD", "int8", [(3, 4), (5, 8)], [const([[1, 1], [3, 1]])], mode="SYMMETRIC"), host=True)
    data = Spec((4, 3), "int8", same_quant("int8"))
    update = one_op("DYNAMIC_UPDATE_SLICE", [data, Spec((2, 3), "int8", data.quant), Spec((2,), "int32")], [data])
    inputs = [draw_array(0, (4, 3), "int8"), draw_array(1, (2, 3), "int8")]
    check(update, *[[*inputs, np.array([start, 0], np.int32)] for start in (0, 2, 99)], host=True)


@pytest.mark.parametrize(
    ("model", "code"),
    [
        (moving("SPACE_TO_DEPTH", "int8", [(1, 3, 4, 1), (1, 1, 2, 4)], block_size=2), "E1129"),
        (moving("DEPTH_TO_SPACE", "int8", [(1, 3, 4, 3), (1, 6, 8, 1)], block_size=2), "E1129"),
        (moving("SPACE_TO_BATCH_ND", "int8", [(1, 3, 1), (2, 1, 1)], [const([2]), const([[0, 0]])]), "E1129"),
        (moving("BATCH_TO_SPACE_ND", "int8", [(3, 3, 1), (2, 6, 1)], [const([2]), const([[0, 0]])]), "E1129"),
        (moving("MIRROR_PAD", "int8", [(3,), (6,)], [const([[3, 0]])], mode="REFLECT"), "E1127"),
        (moving("MIRROR_PAD", "int8", [(3,), (2,)], [const([[-1, 0]])], mode="REFLECT"), "E1127"),
    ],
)
def test_refused(model: bytes, code: str) -> None:
    with pytest.raises(AotError, match=code):
        main_of(model)
