"""GATHER, GATHER_ND."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from aot.errors import AotError
from aot.relay.interpreter import evaluate
from tests.op._differential import FAST, SEEDS, SLOW, check, check_lowering, dims, main_of
from tests.op._one_op import EVERY, Spec, const, draw_array, one_op, same_quant

Case = tuple[bytes, list[Any]]


@st.composite
def gathers(draw: st.DrawFn) -> Case:
    shape = draw(dims(draw(st.integers(1, 4)), largest=4))
    axis = draw(st.integers(0, len(shape) - 1))
    batch = draw(st.integers(0, axis))
    own = (*shape[:batch], *draw(dims(draw(st.integers(0 if batch == 0 else 1, 2)), largest=3)))
    dtype = draw(st.sampled_from([*EVERY, "float16"]))
    index = draw(st.sampled_from(["int32", "int64"]))
    result = (*shape[:axis], *own[batch:], *shape[axis + 1 :])
    rng = np.random.default_rng(draw(SEEDS))
    indices = np.asarray(rng.integers(0, shape[axis], own), index)
    quant = same_quant(dtype)
    options = {"axis": axis - draw(st.sampled_from([0, len(shape)])), "batch_dims": batch}
    fixed = draw(st.booleans())
    second = const(indices, index) if fixed else Spec(own, index)
    model = one_op("GATHER", [Spec(shape, dtype, quant), second], [Spec(result, dtype, quant)], **options)
    data = draw_array(draw(SEEDS), shape, dtype)
    return model, [data] if fixed else [data, indices]


@st.composite
def gather_nds(draw: st.DrawFn) -> Case:
    shape = draw(dims(draw(st.integers(1, 4)), largest=4))
    depth = draw(st.integers(1, len(shape)))
    own = (*draw(dims(draw(st.integers(0, 2)), largest=3)), depth)
    dtype = draw(st.sampled_from([*EVERY, "float16"]))
    index = draw(st.sampled_from(["int32", "int64"]))
    rng = np.random.default_rng(draw(SEEDS))
    indices = np.asarray(rng.integers(0, shape[:depth], own), index)
    quant = same_quant(dtype)
    result = Spec((*own[:-1], *shape[depth:]), dtype, quant)
    model = one_op("GATHER_ND", [Spec(shape, dtype, quant), Spec(own, index)], [result])
    return model, [draw_array(draw(SEEDS), shape, dtype), indices]


@given(gathers(), gather_nds())
@FAST
def test_random(gather: Case, gather_nd: Case) -> None:
    check(gather[0], gather[1])
    check(gather_nd[0], gather_nd[1])


@pytest.mark.slow
@given(gathers(), gather_nds())
@SLOW
def test_random_often(gather: Case, gather_nd: Case) -> None:
    check(gather[0], gather[1])
    check(gather_nd[0], gather_nd[1])


def test_on_host() -> None:
    q = same_quant("int8")
    x = draw_array(1, (4, 3), "int8")
    check(
        one_op("GATHER", [Spec((4, 3), "int8", q), Spec((2,), "int64")], [Spec((2, 3), "int8", q)]),
        [x, np.array([3, 0])],
        host=True,
    )
    nd = one_op("GATHER_ND", [Spec((4, 3), "int8", q), Spec((2, 2), "int32")], [Spec((2,), "int8", q)])
    check(nd, [x, np.array([[3, 0], [1, 2]], np.int32)], host=True)


def test_indices_outside_stay_inside() -> None:
    """The reference stops with an error; here no access may leave the tensor."""
    model = one_op("GATHER", [Spec((4, 3), "float32"), Spec((4,), "int32")], [Spec((4, 3), "float32")])
    inputs = [draw_array(1, (4, 3), "float32"), np.array([-1, 99, -(1 << 31), (1 << 31) - 1], np.int32)]
    found = evaluate(main_of(model), inputs)
    assert (found[0] == inputs[0][[0, 3, 0, 3]]).all()
    check_lowering(main_of(model), [inputs], [found], host=True)


@pytest.mark.parametrize("name", ["GATHER", "GATHER_ND"])
def test_constant_indices_outside(name: str) -> None:
    indices = const([4] if name == "GATHER" else [[4]])
    with pytest.raises(AotError, match="E1133"):
        main_of(one_op(name, [Spec((4, 3), "float32"), indices], [Spec((1, 3), "float32")]))
