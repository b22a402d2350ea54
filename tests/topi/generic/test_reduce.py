"""generic.reduce: which arrangement a reduction gets, and its values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aot
from aot.executor.artifact import Artifact
from aot.runtime import GraphModule
from aot.testing.builder import ModelBuilder

SHAPES = [((1, 4, 5, 8), (1, 2)), ((3, 14), (1,)), ((1, 7), (1,)), ((1, 3, 5, 7), (0, 1, 2, 3)), ((2, 3, 4), (0,))]
CASES = [pytest.param(*c, marks=[] if i == 0 else pytest.mark.slow) for i, c in enumerate([*SHAPES, ((5, 2, 6), (0, 2))])]


def reduction(operator: str, shape: tuple[int, ...], axes: tuple[int, ...], *, keep: bool) -> bytes:
    b = ModelBuilder()
    x = b.tensor("x", shape, "int8", scale=0.1, zero_point=0)
    a = b.tensor("a", (len(axes),), "int32", data=np.array(axes, np.int32))
    out = tuple(1 if i in axes else n for i, n in enumerate(shape) if keep or i not in axes)
    y = b.tensor("y", out, "int8", scale=0.1, zero_point=0)
    b.op(operator, [x, a], [y], keep_dims=keep)
    return b.build([x], [y])


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(("shape", "axes"), CASES)
def test_values(shape: tuple[int, ...], axes: tuple[int, ...], keep: bool) -> None:
    for operator, meaning in (("REDUCE_MAX", np.max), ("REDUCE_MIN", np.min)):
        artifact = aot.build(reduction(operator, shape, axes, keep=keep), target="cortex-m4", name="r")
        assert isinstance(artifact, Artifact)
        assert artifact.metadata["layers"][0]["kernel"] == "generic.reduce"
        x: np.ndarray[Any, Any] = np.random.default_rng(4).integers(-128, 128, shape).astype(np.int8)
        g = GraphModule(artifact)
        g.run(x=x)
        np.testing.assert_array_equal(g.get_output(0), meaning(x, axis=axes, keepdims=keep))


def test_four_channels_side_by_side() -> None:
    artifact = aot.build(reduction("REDUCE_MAX", (1, 4, 5, 8), (1, 2), keep=False), name="r")
    assert isinstance(artifact, Artifact)
    kernels = artifact.files["r_kernels.c"]
    assert all(f"best_{i}" in kernels for i in range(4))
    assert "best_4" not in kernels
