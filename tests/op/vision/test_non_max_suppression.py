"""NON_MAX_SUPPRESSION_V4 and NON_MAX_SUPPRESSION_V5."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from aot.errors import AotError
from tests.op._differential import FAST, OFTEN, SEEDS, check, main_of
from tests.op._one_op import Spec, const, one_op

Array = np.ndarray[Any, Any]
Case = tuple[bytes, list[Array]]


def model(boxes: int, count: int, *, soft: bool, limit: float = 0.5, lowest: float = 0.1, sigma: float = 0.5) -> bytes:
    numbers = [Spec((), "float32", None, np.float32(v)) for v in (limit, lowest, *([sigma] if soft else []))]
    results = [Spec((count,), "int32"), *([Spec((count,), "float32")] if soft else []), Spec((), "int32")]
    inputs = [Spec((boxes, 4), "float32"), Spec((boxes,), "float32"), const(count), *numbers]
    return one_op(f"NON_MAX_SUPPRESSION_V{5 if soft else 4}", inputs, results)


def data(boxes: int, seed: int, *, ties: bool) -> list[Array]:
    """Boxes with corners in either order, some without area, and scores of which many may be equal."""
    rng = np.random.default_rng(seed)
    corners = np.round(rng.random((boxes, 4)) * 8).astype(np.float32) / np.float32(8)
    scores = (rng.integers(0, 4, boxes) / 4 if ties else rng.random(boxes)).astype(np.float32)
    return [corners, scores]


@st.composite
def cases(draw: st.DrawFn, *, soft: bool) -> Case:
    boxes, count, seed = draw(st.integers(1, 14)), draw(st.integers(1, 8)), draw(SEEDS)
    limits = {"limit": draw(st.sampled_from([0.1, 0.5, 0.9])), "lowest": draw(st.sampled_from([0.0, 0.2, 0.6]))}
    sigma = draw(st.sampled_from([0.0, 0.1, 0.5, 2.0]))
    return model(boxes, count, soft=soft, sigma=sigma, **limits), data(boxes, seed, ties=draw(st.booleans()))


@given(cases(soft=False), cases(soft=True))
@FAST
def test_random(hard: Case, soft: Case) -> None:
    for case in (hard, soft):
        check(case[0], case[1])


@pytest.mark.slow
@pytest.mark.parametrize("soft", [False, True])
def test_random_often(soft: bool) -> None:
    @given(cases(soft=soft))
    @OFTEN
    def test(case: Case) -> None:
        check(case[0], case[1])

    test()


def test_on_host() -> None:
    for soft in (False, True):
        check(model(12, 5, soft=soft), data(12, 1, ties=False), data(12, 2, ties=True), host=True)


def test_refused() -> None:
    with pytest.raises(AotError, match="E1207"):
        main_of(model(3, 0, soft=False))
