"""GELU of float32 by erfc where vectors of four leave elements over."""

from __future__ import annotations

import numpy as np
import pytest

from aot.driver.build import build
from aot.op.math.unary import gelu
from tests.op._differential import TARGET, check
from tests.op._one_op import Spec, one_op
from tests.op.math.test_unary import REFERENCE_LIBM, within_an_ulp


def gelu_of(*shape: int) -> bytes:
    return one_op("GELU", [Spec(shape, "float32")], [Spec(shape, "float32")], approximate=False)


@pytest.mark.parametrize("shape", [(1, 3), (2, 3), (5, 1, 5)])
def test_elements_left_over(shape: tuple[int, ...]) -> None:
    """The reference computes the last one to three elements by another erfc, which shows in one of 40."""
    data = np.random.default_rng(7).uniform(-6, 6, (30, *shape)).astype(np.float32)
    outputs = check(gelu_of(*shape), *([x] for x in data), host=shape == (2, 3), agree=None if REFERENCE_LIBM else within_an_ulp)
    found = np.stack([y for (y,) in outputs]).reshape(len(data), -1)
    vectors = gelu(data, approximate=False, library="eigen_").reshape(found.shape)
    whole = found.shape[1] // 4 * 4
    assert (found[:, :whole] == vectors[:, :whole]).all()
    assert (found[:, whole:] != vectors[:, whole:]).any()


@pytest.mark.parametrize(("size", "vectors", "single"), [(8, True, False), (3, False, True), (7, True, True)])
def test_c_has_what_the_size_needs(size: int, *, vectors: bool, single: bool) -> None:
    kernels = build(gelu_of(1, size), target=TARGET, name="g").files["g_kernels.c"]
    assert ("aot_eigen_erfcf(" in kernels, "aot_eigen_scalar_erfcf(" in kernels) == (vectors, single)
