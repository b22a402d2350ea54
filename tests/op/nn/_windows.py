"""Drawn windows of convolutions."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st

from tests.op._differential import ACTIVATIONS, SEEDS, quants


@st.composite
def windows(draw: st.DrawFn) -> dict[str, Any]:
    """What CONV_2D and DEPTHWISE_CONV_2D share; VALID windows fit."""
    padding = draw(st.sampled_from(["SAME", "VALID"]))
    kernel = [draw(st.integers(1, 3)), draw(st.integers(1, 4))]
    dilation = draw(st.sampled_from([(1, 1), (1, 1), (2, 1), (2, 3)]))
    size = [draw(st.integers(1, 6)) for _ in range(2)]
    if padding == "VALID":
        size = [max(n, (k - 1) * d + 1) for n, k, d in zip(size, kernel, dilation, strict=True)]
    stride = draw(st.integers(1, 2))
    return {
        "input_shape": (draw(st.integers(1, 2)), *size, draw(st.integers(1, 5))),
        "kernel": tuple(kernel),
        "dilation": dilation,
        "strides": (stride, stride) if max(dilation) == 1 else (1, 1),
        "padding": padding,
        "activation": draw(ACTIVATIONS),
        "x": draw(quants()),
        "per_channel": draw(st.booleans()),
        "seed": draw(SEEDS),
    }
