"""SCATTER_ND, with places that are constant, computed, or outside."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest

from aot.errors import AotError
from aot.relay.interpreter import evaluate
from tests.op._differential import FAST, SEEDS, SLOW, Case, check, check_drawn, check_lowering, dims, main_of
from tests.op._one_op import EVERY, Spec, const, draw_array, one_op, same_quant


@st.composite
def scatters(draw: st.DrawFn) -> Case:
    shape = draw(dims(draw(st.integers(1, 4)), largest=4))
    depth = draw(st.integers(1, len(shape)))
    outer = draw(dims(draw(st.integers(1, 2)), largest=4))
    dtype = draw(st.sampled_from(EVERY))
    seed = draw(SEEDS)
    rng = np.random.default_rng(seed)
    indices = np.asarray(rng.integers(0, shape[:depth], (*outer, depth)), np.int32)
    updates = draw_array(seed, (*outer, *shape[depth:]), dtype)
    fixed = draw(st.booleans())
    quant = same_quant(dtype)
    operands = [const(indices) if fixed else Spec(indices.shape, "int32"), Spec(updates.shape, dtype, quant), const(shape)]
    model = one_op("SCATTER_ND", operands, [Spec(shape, dtype, quant)])
    return model, [updates] if fixed else [indices, updates]


def test_updates_outside_are_left_out() -> None:
    """The reference stops with an error; here no access may leave the tensor."""
    model = one_op("SCATTER_ND", [Spec((4, 1), "int64"), Spec((4,), "float32"), const([3])], [Spec((3,), "float32")])
    inputs = [np.array([[-1], [2], [3], [1 << 40]]), np.array([1, 2, 4, 8], np.float32)]
    found = evaluate(main_of(model), inputs)
    assert found[0].tolist() == [0, 0, 2]
    check_lowering(main_of(model), [inputs], [found], host=True)


def test_random() -> None:
    check_drawn(scatters(), FAST)


@pytest.mark.slow
def test_random_often() -> None:
    check_drawn(scatters(), SLOW)


def test_on_host() -> None:
    indices = np.array([[1, 0], [1, 0], [3, 1]], np.int32)
    for dtype in ("int8", "int32", "bool", "float32"):
        updates = Spec((3, 2), dtype, same_quant(dtype))
        model = one_op("SCATTER_ND", [Spec((3, 2), "int32"), updates, const([4, 2, 2])], [Spec((4, 2, 2), dtype, updates.quant)])
        check(model, [indices, draw_array(0, (3, 2), dtype)], host=True)


def test_refused() -> None:
    with pytest.raises(AotError, match="E1133"):
        main_of(one_op("SCATTER_ND", [const([[3]]), Spec((1,), "float32"), const([3])], [Spec((3,), "float32")]))


def test_float16_is_added_not_its_bits() -> None:
    """Several updates at one place, rounded after each; beyond the largest number lies infinity."""
    model = one_op("SCATTER_ND", [Spec((4, 1), "int32"), Spec((4, 2), "float16"), const([3, 2])], [Spec((3, 2), "float16")])
    updates = np.array([[0.3772, 6e4], [-0.3962, 6e4], [3, 4], [2049, 1]], np.float16)
    check(model, [np.array([[0], [0], [1], [0]], np.int32), updates], host=True)
