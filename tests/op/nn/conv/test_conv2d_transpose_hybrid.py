"""TRANSPOSE_CONV of float32 data with int8 weights: every product is scaled before it is added."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest

from aot.errors import AotError
from aot.testing import Quant
from tests.op._differential import ACTIVATIONS, FAST, SEEDS, SLOW, check_drawn, main_of
from tests.op._one_op import Spec, const, one_op


@st.composite
def transposed_hybrid(draw: st.DrawFn) -> bytes:
    """Several images, one scale or one a channel, a bias or none."""
    rng = np.random.default_rng(draw(SEEDS))
    n, height, width, depth, channels = (draw(st.integers(1, largest)) for largest in (2, 4, 4, 4, 3))
    kernel, strides = (draw(st.tuples(st.integers(1, 4), st.integers(1, 4))) for _ in range(2))
    padding = draw(st.sampled_from(["SAME", "VALID"]))
    grown = [max(k - s, 0) if padding == "VALID" else 0 for k, s in zip(kernel, strides, strict=True)]
    out = (n, height * strides[0] + grown[0], width * strides[1] + grown[1], channels)
    codes = rng.integers(-127, 127, (channels, *kernel, depth), np.int8, endpoint=True)
    scales = rng.uniform(1e-3, 0.1, channels if draw(st.booleans()) else 1).astype(np.float32)
    weight = Spec(codes.shape, "int8", data=codes, scales=tuple(scales.tolist()))
    inputs = [const(out), weight, Spec((n, height, width, depth), "float32")]
    if draw(st.booleans()):
        inputs.append(Spec((channels,), "float32", None, rng.normal(size=channels).astype(np.float32)))
    options: dict[str, Any] = dict(zip(("stride_h", "stride_w"), strides, strict=True))
    options["fused_activation_function"] = draw(ACTIVATIONS)
    return one_op("TRANSPOSE_CONV", inputs, [Spec(out, "float32")], version=4, padding=padding, **options)


def test_random() -> None:
    check_drawn(transposed_hybrid(), FAST)


@pytest.mark.slow
def test_random_often() -> None:
    check_drawn(transposed_hybrid(), SLOW)


@pytest.mark.parametrize(
    ("quant", "bias", "code"),
    [(None, "float32", "E1206"), (Quant(0.5, 3), "float32", "E1224"), (Quant(0.5, 0), "int32", "E1203")],
)
def test_refused(quant: Quant | None, bias: str, code: str) -> None:
    """No scale, a zero point, a bias of integers."""
    weight = Spec((1, 2, 2, 3), "int8", quant, np.ones((1, 2, 2, 3), np.int8))
    inputs = [const((1, 4, 4, 1)), weight, Spec((1, 2, 2, 3), "float32"), Spec((1,), bias, None, np.zeros(1, bias))]
    options = {"stride_h": 2, "stride_w": 2, "padding": "SAME", "fused_activation_function": "NONE"}
    with pytest.raises(AotError, match=code):
        main_of(one_op("TRANSPOSE_CONV", inputs, [Spec((1, 4, 4, 1), "float32")], version=4, **options))
