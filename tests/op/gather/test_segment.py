"""UNSORTED_SEGMENT_SUM, PROD, MAX and MIN and SEGMENT_SUM against the reference's kernels."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest

from aot.errors import AotError
from aot.relay.interpreter import evaluate
from tests.op._differential import FAST, OFTEN, SEEDS, Case, check, check_drawn, check_lowering, dims, main_of
from tests.op._one_op import Spec, const, draw_array, one_op


@st.composite
def segments(draw: st.DrawFn, opcode: str) -> Case:
    ids = draw(dims(draw(st.integers(1, 2)), largest=4))
    rest, count = draw(dims(draw(st.integers(0, 2)), largest=3)), draw(st.integers(1, 4))
    dtype, seed = draw(st.sampled_from(["int32", "float32"])), draw(SEEDS)
    data = Spec((*ids, *rest), dtype)
    chosen = np.asarray(np.random.default_rng(seed).integers(-1, count, ids), np.int32)
    model = one_op(opcode, [data, Spec(ids, "int32"), const(count)], [Spec((count, *rest), dtype)])
    return model, [draw_array(seed, data.shape, dtype), chosen]


@st.composite
def sorted_segments(draw: st.DrawFn) -> Case:
    steps = draw(st.lists(st.integers(0, 1), min_size=0, max_size=6))
    ids = np.cumsum([0, *steps]).astype(np.int32)
    rest, dtype, seed = draw(dims(draw(st.integers(0, 2)), largest=3)), draw(st.sampled_from(["int32", "float32"])), draw(SEEDS)
    model = one_op("SEGMENT_SUM", [Spec((len(ids), *rest), dtype), const(ids)], [Spec((int(ids[-1]) + 1, *rest), dtype)])
    data = draw_array(seed, (len(ids), *rest), dtype)
    return model, [np.asarray(data >> 4, dtype) if dtype == "int32" else data]


KINDS = ["SUM", "PROD", "MAX", "MIN"]


@pytest.mark.parametrize("kind", KINDS)
def test_random(kind: str) -> None:
    check_drawn(segments(f"UNSORTED_SEGMENT_{kind}"), FAST)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_random_often(kind: str) -> None:
    check_drawn(segments(f"UNSORTED_SEGMENT_{kind}"), OFTEN)


def test_sorted_random() -> None:
    check_drawn(sorted_segments(), FAST)


@pytest.mark.slow
def test_sorted_random_often() -> None:
    check_drawn(sorted_segments(), OFTEN)


def test_on_host() -> None:
    rows, ids = np.arange(12, dtype=np.float32).reshape(4, 3), np.array([1, -1, 1, 0], np.int32)
    for kind in ("SUM", "MAX"):
        inputs = [Spec((4, 3), "float32"), Spec((4,), "int32"), const(3)]
        check(one_op(f"UNSORTED_SEGMENT_{kind}", inputs, [Spec((3, 3), "float32")]), [rows, ids], host=True)


def test_places_outside_are_left_out() -> None:
    """The reference stops with an error; here no access may leave the tensor."""
    ids = [Spec((3,), "float32"), Spec((3,), "int32"), const(2)]
    model = one_op("UNSORTED_SEGMENT_SUM", ids, [Spec((2,), "float32")])
    data = [np.array([1, 2, 4], np.float32), np.array([-5, 1, 1 << 30], np.int32)]
    found = evaluate(main_of(model), data)
    assert found[0].tolist() == [0, 2]
    check_lowering(main_of(model), [data], [found], host=True)


def test_refused() -> None:
    row = Spec((4,), "float32")
    with pytest.raises(AotError, match="E1207"):
        main_of(one_op("UNSORTED_SEGMENT_SUM", [row, Spec((3,), "int32"), const(2)], [Spec((2,), "float32")]))
    rows = Spec((3, 2), "float32")
    for ids, code in ((const([0, 2, 2]), "E1207"), (const([1, 1, 2]), "E1207"), (Spec((3,), "int32"), "E1213")):
        with pytest.raises(AotError, match=code):
            main_of(one_op("SEGMENT_SUM", [rows, ids], [rows]))
