"""SPARSE_TO_DENSE against the reference's kernel."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest

from aot.relay.interpreter import evaluate
from tests.op._differential import FAST, OFTEN, SEEDS, Case, check, check_drawn, check_lowering, dims, main_of
from tests.op._one_op import Spec, const, draw_array, one_op, same_quant


@st.composite
def sparse(draw: st.DrawFn) -> Case:
    shape = draw(dims(draw(st.integers(1, 4)), largest=4))
    count, dtype, seed = (
        draw(st.integers(1, 5)),
        draw(st.sampled_from(["int8", "uint8", "int32", "int64", "float32"])),
        draw(SEEDS),
    )
    kind, scalar, quant = draw(st.sampled_from(["int32", "int64"])), draw(st.booleans()), same_quant(dtype)
    rng = np.random.default_rng(seed)
    places = np.asarray(rng.integers(0, shape, (count, len(shape))), kind)
    if len(shape) == 1 and draw(st.booleans()):
        places = places.reshape(count)
    values = Spec(() if scalar else (count,), dtype, quant)
    default = Spec((), dtype, quant, draw_array(seed + 1, (), dtype))
    model = one_op("SPARSE_TO_DENSE", [Spec(places.shape, kind), const(shape), values, default], [Spec(shape, dtype, quant)],
                   validate_indices=False)  # fmt: skip
    return model, [places, draw_array(seed, values.shape, dtype)]


def test_random() -> None:
    check_drawn(sparse(), FAST)


@pytest.mark.slow
def test_random_often() -> None:
    check_drawn(sparse(), OFTEN)


def test_on_host() -> None:
    places = [Spec((2, 2), "int32"), const([3, 3]), Spec((2,), "float32"), Spec((), "float32", None, np.float32(7))]
    model = one_op("SPARSE_TO_DENSE", places, [Spec((3, 3), "float32")], validate_indices=False)
    check(model, [np.array([[1, 2], [0, 0]], np.int32), np.array([5, 6], np.float32)], host=True)


def test_places_outside_are_left_out() -> None:
    """The reference stops with an error; here no access may leave the tensor."""
    inputs = [Spec((3, 2), "int64"), const([2, 2]), Spec((3,), "float32"), Spec((), "float32", None, np.float32(0))]
    model = one_op("SPARSE_TO_DENSE", inputs, [Spec((2, 2), "float32")], validate_indices=False)
    data = [np.array([[-1, 0], [1, 1], [1 << 40, 0]]), np.array([1, 2, 4], np.float32)]
    found = evaluate(main_of(model), data)
    assert found[0].tolist() == [[0, 0], [0, 2]]
    check_lowering(main_of(model), [data], [found], host=True)
