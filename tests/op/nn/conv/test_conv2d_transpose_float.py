"""TRANSPOSE_CONV on float32, in the order of the reference's sums."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest

from tests.op._differential import ACTIVATIONS, FAST, SEEDS, SLOW, check_drawn
from tests.op._one_op import Spec, one_op


@st.composite
def transposed_float(draw: st.DrawFn) -> bytes:
    """As `transposed`, several images, some with a fused activation."""
    rng = np.random.default_rng(draw(SEEDS))
    n, height, width, depth, channels = (draw(st.integers(1, largest)) for largest in (2, 4, 4, 4, 3))
    kernel, strides = (draw(st.tuples(st.integers(1, 4), st.integers(1, 4))) for _ in range(2))
    padding = draw(st.sampled_from(["SAME", "VALID"]))
    grown = [max(k - s, 0) if padding == "VALID" else 0 for k, s in zip(kernel, strides, strict=True)]
    out = (n, height * strides[0] + grown[0], width * strides[1] + grown[1], channels)
    operands = [np.asarray(out, np.int32), rng.normal(size=(channels, *kernel, depth)).astype(np.float32)]
    inputs = [*(Spec(a.shape, str(a.dtype), None, a) for a in operands), Spec((n, height, width, depth), "float32")]
    if draw(st.booleans()):
        inputs.append(Spec((channels,), "float32", None, rng.normal(size=channels).astype(np.float32)))
    options: dict[str, Any] = dict(zip(("stride_h", "stride_w"), strides, strict=True))
    options["fused_activation_function"] = draw(ACTIVATIONS)
    return one_op("TRANSPOSE_CONV", inputs, [Spec(out, "float32")], version=4, padding=padding, **options)


def test_random() -> None:
    check_drawn(transposed_float(), FAST)


@pytest.mark.slow
def test_random_often() -> None:
    check_drawn(transposed_float(), SLOW)
