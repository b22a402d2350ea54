"""expm1f and tanhf, bit for bit what glibc 2.36 gave, at points where a correctly rounded function gives something else."""

from __future__ import annotations

import math

import numpy as np
import pytest

from aot.op._fdlibm import expm1f, tanhf

EXPM1 = [
    (0xBDFEB46A, 0xBDEF80C0),
    (0xBF6DB726, 0xBF1AD9AE),
    (0x3F729B11, 0x3FCA3414),
    (0xBEA5B057, 0xBE8D8D42),
    (0xC04D06E0, 0xBF759A10),
    (0x412854ED, 0x4710D352),
    (0x423FC08E, 0x620F02A2),
    (0x42B0FAFB, 0x7F4ADD1E),
]
"""(argument, result), one for each way that the function goes."""

TANH = [
    (0xB896FF04, 0xB896FF05),
    (0x3DB99ED3, 0x3DB91D21),
    (0x3F2BA764, 0x3F15D7C8),
    (0x3F9BE065, 0x3F56C8B0),
    (0xC0555EB6, 0xBF7F5998),
]


@pytest.mark.parametrize(("func", "exact", "pairs"), [(expm1f, math.expm1, EXPM1), (tanhf, math.tanh, TANH)])
def test_bits(func, exact, pairs) -> None:  # type: ignore[no-untyped-def]
    x, wanted = (np.array(column, np.uint32).view(np.float32) for column in zip(*pairs, strict=True))
    assert func(x).view(np.uint32).tolist() == wanted.view(np.uint32).tolist()
    assert all(np.float32(exact(float(a))) != b for a, b in zip(x, wanted, strict=True))


def test_edges() -> None:
    tiny, inf = float(np.float32(1e-30)), math.inf
    edges = np.array([0.0, -0.0, tiny, inf, -inf, math.nan, 89, -20], np.float32)
    assert [repr(float(v)) for v in expm1f(edges)] == list(map(repr, [0.0, -0.0, tiny, inf, -1.0, math.nan, inf, -1.0]))
    assert [repr(float(v)) for v in tanhf(edges)] == list(map(repr, [0.0, -0.0, tiny, 1.0, -1.0, math.nan, 1.0, -1.0]))
