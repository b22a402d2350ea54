"""MIRROR_PAD in both modes."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest

from aot.errors import AotError
from tests.op._differential import FAST, SLOW, check, check_drawn, dims, main_of
from tests.op._one_op import EVERY, const, moving


@st.composite
def mirrors(draw: st.DrawFn) -> bytes:
    shape = draw(dims(draw(st.integers(1, 4)), largest=4))
    mode = draw(st.sampled_from(["REFLECT", "SYMMETRIC"]))
    most = [n - (mode == "REFLECT") for n in shape]
    pads = [(draw(st.integers(0, m)), draw(st.integers(0, m))) for m in most]
    result = [n + sum(p) for n, p in zip(shape, pads, strict=True)]
    return moving("MIRROR_PAD", draw(st.sampled_from(EVERY)), [shape, result], [const(pads)], mode=mode)


def test_random() -> None:
    check_drawn(mirrors(), FAST)


@pytest.mark.slow
def test_random_often() -> None:
    check_drawn(mirrors(), SLOW)


def test_on_host() -> None:
    check(moving("MIRROR_PAD", "int8", [(3, 4), (5, 8)], [const([[1, 1], [3, 1]])], mode="SYMMETRIC"), host=True)


@pytest.mark.parametrize(("result", "pads"), [((6,), [[3, 0]]), ((2,), [[-1, 0]])])
def test_refused(result: tuple[int, ...], pads: list[list[int]]) -> None:
    with pytest.raises(AotError, match="E1127"):
        main_of(moving("MIRROR_PAD", "int8", [(3,), result], [const(pads)], mode="REFLECT"))
