"""expm1f, tanhf and erfcf, bit for bit those of glibc 2.36, where correctly rounded functions give something else."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from aot.ir.op import Array
from aot.numerics.elementary import erfcf, expm1f, tanhf

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


ERFC = [
    (0xBF36DFB2, 0x3FD803FE),
    (0x3EA3F5AE, 0x3F269014),
    (0x3F9B6C73, 0x3DB0023E),
    (0xBF9CB414, 0x3FF55378),
    (0x402BA5FB, 0x391C1CE9),
    (0xBFA2A9D4, 0x3FF6BEB6),
    (0x40A42C60, 0x2AE145F3),
]
Pairs = list[tuple[int, int]]
CASES = [(expm1f, math.expm1, EXPM1), (tanhf, math.tanh, TANH), (erfcf, math.erfc, ERFC)]


@pytest.mark.parametrize(("func", "exact", "pairs"), CASES, ids=["expm1", "tanh", "erfc"])
def test_bits(func: Callable[[Array], Array], exact: Callable[[float], float], pairs: Pairs) -> None:
    x, wanted = (np.array(column, np.uint32).view(np.float32) for column in zip(*pairs, strict=True))
    assert func(x).view(np.uint32).tolist() == wanted.view(np.uint32).tolist()
    assert all(np.float32(exact(float(a))) != b for a, b in zip(x, wanted, strict=True))


def test_edges() -> None:
    tiny, inf = float(np.float32(1e-30)), math.inf
    edges = np.array([0.0, -0.0, tiny, inf, -inf, math.nan, 89, -20], np.float32)
    assert [repr(float(v)) for v in expm1f(edges)] == list(map(repr, [0.0, -0.0, tiny, inf, -1.0, math.nan, inf, -1.0]))
    assert [repr(float(v)) for v in erfcf(edges)] == list(map(repr, [1.0, 1.0, 1.0, 0.0, 2.0, math.nan, 0.0, 2.0]))
    assert [repr(float(v)) for v in tanhf(edges)] == list(map(repr, [0.0, -0.0, tiny, 1.0, -1.0, math.nan, 1.0, -1.0]))
