"""The inverse square root of gemmlowp: the expression against the Python integers."""

from __future__ import annotations

import numpy as np

from aot.numerics.fixed_point import inverse_sqrt, tir_inverse_sqrt
from aot.tir.builder import IRBuilder
from aot.tir.interpreter import run


def test_any_sum() -> None:
    """The expression against the Python integers, over the whole range of int32."""
    rng = np.random.default_rng(0)
    edges = [*range(9), 1 << 29, (1 << 29) - 1, (1 << 31) - 1]
    values = np.concatenate([edges, 2 ** rng.uniform(1, 31, 100)]).astype(np.int32)
    b = IRBuilder("roots")
    x, out = b.input("x", values.shape, "int32"), b.output("out", (2, *values.shape), "int32")
    with b.for_("i", len(values)) as i:
        for k, part in enumerate(tir_inverse_sqrt(b, x[i])):
            b.store(out, (k, i), part)
    found = np.zeros((2, len(values)), np.int32)
    run(b.finish(), {"x": values, "out": found})
    assert found.T.tolist() == [list(inverse_sqrt(int(v))) for v in values]
