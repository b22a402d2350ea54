"""Drawn windows of pools, and pools of other types than int8."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st

from aot.testing import Quant
from tests.op._differential import ACTIVATIONS, dims, quants
from tests.op._one_op import Spec, one_op


@st.composite
def pools(draw: st.DrawFn) -> dict[str, Any]:
    """Keyword arguments of `pool_model`."""
    padding = draw(st.sampled_from(["SAME", "VALID"]))
    n, h, w, c = draw(dims(4, largest=7))
    kernel = [draw(st.integers(1, 5)) for _ in range(2)]
    if padding == "VALID":
        kernel = [min(kernel[0], h), min(kernel[1], w)]
    return {
        "input_shape": (min(n, 2), h, w, min(c, 3)),
        "kernel": tuple(kernel),
        "strides": draw(dims(2, largest=3)),
        "padding": padding,
        "activation": draw(ACTIVATIONS),
        "x": draw(quants()),
    }


def coded(kind: str, dtype: str, activation: str) -> bytes:
    q = Quant(0.04, 0 if dtype == "int16" else 117)
    window = {"filter_height": 3, "filter_width": 2, "stride_h": 2, "stride_w": 2, "padding": "SAME"}
    inputs, out = [Spec((1, 7, 6, 5), dtype, q)], Spec((1, 4, 3, 5), dtype, q)
    return one_op(kind, inputs, [out], version=3, fused_activation_function=activation, **window)
