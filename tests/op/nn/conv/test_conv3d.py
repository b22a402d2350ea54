"""CONV_3D and CONV_3D_TRANSPOSE."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from aot.errors import AotError
from tests.op._differential import FAST, OFTEN, SEEDS, check, dims, main_of
from tests.op._one_op import Spec, const, draw_array, one_op

Array = np.ndarray[Any, Any]
Case = tuple[bytes, list[Array]]
ACTIVATIONS = st.sampled_from(["NONE", "RELU", "RELU6"])


def output(n: int, k: int, s: int, d: int, padding: str) -> int:
    return -(-n // s) if padding == "SAME" else (n - (k - 1) * d - 1) // s + 1


def numbers(strides: tuple[int, ...], dilation: tuple[int, ...]) -> dict[str, int]:
    found = {f"stride_{a}": s for a, s in zip("dhw", strides, strict=True)}
    return found | {f"dilation_{a}_factor": d for a, d in zip("dhw", dilation, strict=True)}


@st.composite
def convolutions(draw: st.DrawFn, *, transpose: bool) -> Case:
    kernel, strides = draw(dims(3, largest=3)), draw(dims(3, largest=2))
    dilation = draw(dims(3, largest=2))
    padding = draw(st.sampled_from(["SAME", "VALID"]))
    size = tuple((k - 1) * d + draw(st.integers(1, 3)) for k, d in zip(kernel, dilation, strict=True))
    other = tuple(output(n, k, s, d, padding) for n, k, s, d in zip(size, kernel, strides, dilation, strict=True))
    n, wide, narrow = draw(dims(3, largest=2))
    seed = draw(SEEDS)
    bias = [Spec((narrow,), "float32", None, draw_array(seed + 2, (narrow,), "float32"))] if draw(st.booleans()) else []
    options = numbers(strides, dilation) | {"padding": padding, "fused_activation_function": draw(ACTIVATIONS)}
    if transpose:
        weight = Spec((*kernel, narrow, wide), "float32", None, draw_array(seed + 1, (*kernel, narrow, wide), "float32"))
        given = Spec((n, *other, wide), "float32")
        result = Spec((n, *size, narrow), "float32")
        model = one_op("CONV_3D_TRANSPOSE", [const(result.shape), weight, given, *bias], [result], **options)
    else:
        weight = Spec((*kernel, wide, narrow), "float32", None, draw_array(seed + 1, (*kernel, wide, narrow), "float32"))
        given = Spec((n, *size, wide), "float32")
        model = one_op("CONV_3D", [given, weight, *bias], [Spec((n, *other, narrow), "float32")], **options)
    return model, [draw_array(seed, given.shape, "float32")]


@given(convolutions(transpose=False), convolutions(transpose=True))
@FAST
def test_random(forward: Case, backward: Case) -> None:
    for model, inputs in (forward, backward):
        check(model, inputs)


@pytest.mark.slow
@pytest.mark.parametrize("transpose", [False, True])
def test_random_often(transpose: bool) -> None:
    @given(convolutions(transpose=transpose))
    @OFTEN
    def test(case: Case) -> None:
        check(case[0], case[1])

    test()


def test_on_host() -> None:
    weight = Spec((2, 2, 2, 2, 3), "float32", None, draw_array(1, (2, 2, 2, 2, 3), "float32"))
    given = Spec((1, 3, 4, 3, 2), "float32")
    options = numbers((1, 2, 1), (1, 1, 1)) | {"padding": "SAME"}
    check(one_op("CONV_3D", [given, weight], [Spec((1, 3, 2, 3, 3), "float32")], **options), host=True)
    back = Spec((1, 3, 2, 3, 3), "float32")
    check(one_op("CONV_3D_TRANSPOSE", [const((1, 3, 4, 3, 2)), weight, back], [given], **options), host=True)


def test_refused() -> None:
    weight = Spec((2, 2, 2, 3, 3), "float32", None, np.ones((2, 2, 2, 3, 3), np.float32))
    options = numbers((1, 1, 1), (1, 1, 1)) | {"padding": "SAME"}
    given, result = Spec((1, 3, 4, 3, 2), "float32"), Spec((1, 3, 4, 3, 3), "float32")
    with pytest.raises(AotError, match="E1207"):
        main_of(one_op("CONV_3D", [given, weight], [result], **options))
    with pytest.raises(AotError, match="E1123"):
        main_of(one_op("CONV_3D", [given, weight], [result], **(options | {"stride_d": 0})))
