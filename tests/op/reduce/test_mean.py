"""MEAN over any axes, with and without a change of scale."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from aot.errors import AotError
from aot.frontend.tflite.convert import normalized_axes
from aot.op.common.tensors import reduced_shape
from aot.relay.interpreter import evaluate
from aot.testing import HAVE_LITERT, Quant, mean_model, reference_sets
from tests.op._differential import FAST, SEEDS, SLOW, check, check_lowering, dims, main_of, quants, random_sets, same
from tests.op._one_op import Spec, const, one_op


@st.composite
def means(draw: st.DrawFn) -> dict[str, Any]:
    rank = draw(st.integers(1, 4))
    axes = draw(st.lists(st.integers(-rank, rank - 1), min_size=1, max_size=rank, unique_by=lambda a: a % rank))
    x = draw(quants())
    return {
        "input_shape": draw(dims(rank)),
        "axes": axes,
        "keep_dims": draw(st.booleans()),
        "x": x,
        "y": draw(st.one_of(st.just(x), quants())),
    }


@given(means(), SEEDS)
@FAST
def test_random(case: dict[str, Any], seed: int) -> None:
    check(mean_model(**case), seed=seed)


@pytest.mark.slow
@given(means(), SEEDS)
@SLOW
def test_random_often(case: dict[str, Any], seed: int) -> None:
    check(mean_model(**case), seed=seed, host=True)


@given(means(), SEEDS)
@FAST
def test_sums_to_the_letter(case: dict[str, Any], seed: int) -> None:
    """What LiteRT's reference kernel makes of int8: it takes the codes for uint8."""
    model = sum_model(**case)
    main = main_of(model, oracle="litert-reference")
    sets = random_sets(main, seed=seed)
    found = [evaluate(main, s) for s in sets]
    if HAVE_LITERT:
        for outputs, wanted in zip(found, reference_sets(model, sets), strict=True):
            same(outputs, wanted, "evaluate differs from LiteRT's reference kernels")
    check_lowering(main, sets, found, host=False)


def sum_model(*, input_shape: tuple[int, ...], axes: list[int], keep_dims: bool, x: Quant, y: Quant) -> bytes:
    """SUM of int8."""
    shape = reduced_shape(input_shape, normalized_axes(np.array(axes), len(input_shape)), keepdims=keep_dims)
    operands = [Spec(input_shape, "int8", x), const(axes)]
    return one_op("SUM", operands, [Spec(shape, "int8", y)], keep_dims=keep_dims)


def test_sums_of_int16_to_the_letter() -> None:
    """The reference kernel leaves half of the result unwritten."""
    x = Quant(0.1, 0)
    model = one_op("SUM", [Spec((4, 3), "int16", x), const([1])], [Spec((4,), "int16", x)], keep_dims=False)
    with pytest.raises(AotError, match="half of an int16 SUM"):
        main_of(model, oracle="litert-reference")


@pytest.mark.parametrize("keep_dims", [False, True])
@pytest.mark.parametrize("y", [None, Quant(0.3, 5)])
def test_global_pooling(keep_dims: bool, y: Quant | None) -> None:
    check(mean_model(input_shape=(2, 9, 9, 4), keep_dims=keep_dims, x=Quant(0.5, -128), y=y), host=True)


def test_large_count() -> None:
    x = np.full((1, 60, 60, 1), 127, np.int8)
    check(mean_model(input_shape=x.shape, x=Quant(0.5, -128), y=Quant(0.25, -128)), [x], [-x])


def test_axes() -> None:
    assert normalized_axes(np.array([-1, 0, 3]), 4) == (0, 3)
    with pytest.raises(ValueError, match="axes"):
        normalized_axes(np.array([4]), 4)


def test_axis_that_does_not_exist() -> None:
    with pytest.raises(AotError):
        main_of(mean_model(axes=(7,)))


def test_legacy() -> None:
    x = Quant(0.1, 99)
    check(one_op("MEAN", [Spec((1, 4, 5, 3), "uint8", x), const([1, 2])], [Spec((1, 3), "uint8", Quant(0.07, 120))]))
