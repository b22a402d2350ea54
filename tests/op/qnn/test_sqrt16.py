"""SQRT of quantised values against the reference."""

from __future__ import annotations

from platform import machine

import numpy as np
import pytest

from aot.testing import Quant
from tests.op._differential import check
from tests.op._one_op import Spec, one_op
from tests.scale import cases


def drawn(seed: int, dtype: str, *, host: bool = False) -> None:
    """Every value of the type that is not negative, or some of them; one result in four does not fit its type."""
    rng = np.random.default_rng(seed)
    limits = np.iinfo(dtype)
    zero_in, zero = (0, 0) if dtype == "int16" else (int(n) for n in rng.integers(limits.min, limits.max + 1, 2))
    x = rng.integers(zero_in, limits.max + 1, (1, 64)).astype(dtype)
    x[0, :3] = zero_in, min(zero_in + 1, limits.max), limits.max
    scale = float(np.float32(np.exp(rng.uniform(-12, 2))))
    largest = float(np.sqrt(scale * (limits.max - zero_in + 1)))
    result = float(np.float32(largest / limits.max * rng.choice([1.01, 2.3, 0.9, 0.3]) * rng.uniform(0.5, 2)))
    model = one_op("SQRT", [Spec(x.shape, dtype, Quant(scale, zero_in))], [Spec(x.shape, dtype, Quant(result, zero))])
    check(model, [x], host=host)


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_some(dtype: str) -> None:
    for seed in range(5):
        drawn(seed, dtype, host=not seed)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_drawn(dtype: str) -> None:
    for seed in range(cases(345)):
        drawn(100 + seed, dtype)


def test_every_number() -> None:
    x = np.arange(32768, dtype=np.int16)
    check(one_op("SQRT", [Spec(x.shape, "int16", Quant(0.37, 0))], [Spec(x.shape, "int16", Quant(0.0034, 0))]), [x])


@pytest.mark.skipif(machine() != "x86_64", reason="the reference's casts are those of x86-64")
@pytest.mark.parametrize(("dtype", "zero"), [("int8", -3), ("int8", 5), ("int16", 0)])
@pytest.mark.parametrize("result", [1e-8, 1e-30])
def test_roots_beyond_an_int32(dtype: str, zero: int, result: float) -> None:
    x = np.array([[0, 1, 5, 127]], dtype)
    model = one_op("SQRT", [Spec(x.shape, dtype, Quant(0.5, 0))], [Spec(x.shape, dtype, Quant(result, zero))])
    check(model, [x], host=True)
