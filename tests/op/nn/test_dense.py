"""FULLY_CONNECTED: random shapes, activations and quantisations; int16 data, 4-bit weights, legacy uint8."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from aot.driver.build import build
from aot.testing import Quant, dense_model
from tests.op._differential import ACTIVATIONS, FAST, FEW, SEEDS, SLOW, check, check_drawn, quants
from tests.op._layer_models import INT4, INT16, INT16_BIAS32, INT16_INT4, INT16_NO_BIAS, UINT8, Kind, LayerModel, rows
from tests.op.nn._sums import sums_of_64_bits


@given(st.integers(1, 3), st.integers(1, 40), st.integers(1, 9), ACTIVATIONS, quants(), st.booleans(), SEEDS)
@FAST
def test_random(rows: int, depth: int, units: int, activation: Any, x: Quant, bias: bool, seed: int) -> None:
    check(dense_model(input_shape=(rows, depth), units=units, activation=activation, x=x, bias=bias, seed=seed), seed=seed)


@pytest.mark.parametrize("scale", [0.5, 0.25, 0.125])
def test_ties(scale: float) -> None:
    """Multipliers that are powers of two, where rounding once or twice makes a difference."""
    x, y = Quant(0.5, 0), Quant(scale * 16, 0)
    check(dense_model(input_shape=(4, 9), units=8, weight_scale=[scale], x=x, y=y))


@pytest.mark.parametrize("y_scale", [1e6, 1e-4])
def test_extreme_output_scales(y_scale: float) -> None:
    """Results that vanish, and results that saturate."""
    check(dense_model(y=Quant(y_scale, 3)))


def test_on_host() -> None:
    check(dense_model(), host=True)


DENSE_KINDS = [INT16, INT16_BIAS32, INT16_NO_BIAS, INT4, pytest.param(INT16_INT4, marks=pytest.mark.slow), UINT8]


@pytest.mark.parametrize("kind", DENSE_KINDS, ids=str)
def test_kinds(kind: Kind) -> None:
    check_drawn(rows(kind).map(LayerModel.build), FAST)


@pytest.mark.slow
@pytest.mark.parametrize("kind", DENSE_KINDS, ids=str)
def test_kinds_often(kind: Kind) -> None:
    check_drawn(rows(kind).map(LayerModel.build), SLOW)


RUNNING = [Kind("int8", "int8"), INT16, INT16_BIAS32, UINT8]


def running(kind: Kind) -> st.SearchStrategy[bytes]:
    """Layers whose weights are an input of the model."""
    return rows(kind).map(lambda layer: replace(layer, running=True).build())


@pytest.mark.parametrize("kind", RUNNING, ids=str)
def test_weights_at_run_time(kind: Kind) -> None:
    check_drawn(running(kind), FEW)


@pytest.mark.slow
@pytest.mark.parametrize("kind", RUNNING, ids=str)
def test_weights_at_run_time_often(kind: Kind) -> None:
    check_drawn(running(kind), SLOW)


@pytest.mark.parametrize("cpu", ["host", "cortex-m0", "cortex-m4", "cortex-m55"])
def test_kernels_of_weights_at_run_time(cpu: str) -> None:
    """Those that pack weights at compile time leave such a layer to others."""
    model = LayerModel("FULLY_CONNECTED", RUNNING[0], (3, 32), 8, running=True).build()
    (layer,) = build(model, target=cpu).metadata["layers"]
    assert layer["kernel"].startswith("generic.dense")


def test_sums_of_64_bits() -> None:
    sums_of_64_bits("FULLY_CONNECTED", (1, 700))


@pytest.mark.parametrize("kind", [INT16, INT4, UINT8], ids=str)
def test_kinds_on_host(kind: Kind) -> None:
    check(LayerModel("FULLY_CONNECTED", kind, (2, 19), 7).build(), host=True)


def test_int16_data_with_4_bit_weights() -> None:
    check(LayerModel("FULLY_CONNECTED", INT16_INT4, (2, 19), 7).build())
