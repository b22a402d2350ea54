"""L2_POOL_2D against the reference's kernel."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest

from tests.op._differential import ACTIVATIONS, FAST, OFTEN, SEEDS, Case, check_drawn, dims
from tests.op._one_op import Spec, draw_array, one_op


@st.composite
def l2_pools(draw: st.DrawFn) -> Case:
    kernel, strides = draw(dims(2, largest=3)), draw(dims(2, largest=3))
    padding = draw(st.sampled_from(["SAME", "VALID"]))
    height, width, channels = draw(st.integers(3, 7)), draw(st.integers(3, 7)), draw(st.integers(1, 3))
    out = [
        -(-n // s) if padding == "SAME" else (n - k) // s + 1 for n, k, s in zip((height, width), kernel, strides, strict=True)
    ]
    options = {"filter_height": kernel[0], "filter_width": kernel[1], "stride_h": strides[0], "stride_w": strides[1]}
    given = Spec((2, height, width, channels), "float32")
    model = one_op("L2_POOL_2D", [given], [Spec((2, *out, channels), "float32")], padding=padding,
                   fused_activation_function=draw(ACTIVATIONS), **options)  # fmt: skip
    return model, [draw_array(draw(SEEDS), given.shape, "float32")]


def test_random() -> None:
    check_drawn(l2_pools(), FAST)


@pytest.mark.slow
def test_random_often() -> None:
    check_drawn(l2_pools(), OFTEN)
