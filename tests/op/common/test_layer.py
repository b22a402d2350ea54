"""SAME and VALID against their definition, by counting."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from aot.frontend.tflite.layer import Window, explicit_padding, fit_axis
from aot.op.common.layer import output_size
from tests.op._differential import FAST


@given(st.sampled_from(["SAME", "VALID"]), st.integers(1, 40), st.integers(1, 7), st.integers(1, 4), st.integers(1, 3))
@FAST
def test_axis(scheme: str, size: int, kernel: int, stride: int, dilation: int) -> None:
    out, before, after = fit_axis(scheme, size, kernel, stride=stride, dilation=dilation)
    effective = (kernel - 1) * dilation + 1
    if scheme == "SAME":
        assert out == len(range(0, size, stride))
        assert 0 <= after - before <= 1
    else:
        assert (before, after) == (0, 0)
        assert max(out, 0) == len([i for i in range(0, size, stride) if i + effective <= size])
    if out > 0:
        assert output_size(size, kernel, stride=stride, dilation=dilation, before=before, after=after) >= out


def test_two_dimensions() -> None:
    assert explicit_padding("SAME", Window((5, 6), (3, 2), (1, 1))) == (1, 0, 1, 1)
    assert explicit_padding("VALID", Window((5, 6), (3, 2), (1, 1))) == (0, 0, 0, 0)
