"""CONV_2D: random shapes, strides, dilations, activations and quantisations; int16 data, 4-bit weights, legacy uint8."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from aot.testing import Quant, conv2d_model
from tests.op._differential import FAST, SLOW, check, check_drawn
from tests.op._layer_models import INT4, INT16, INT16_BIAS32, INT16_INT4, UINT8, Kind, LayerModel
from tests.op._layer_models import windows as windows_of
from tests.op.nn._sums import sums_of_64_bits
from tests.op.nn._windows import windows


@given(windows(), st.integers(1, 6))
@FAST
def test_random(case: dict[str, Any], filters: int) -> None:
    check(conv2d_model(filters=filters, **case))


@pytest.mark.slow
@given(windows(), st.integers(1, 9))
@SLOW
def test_random_often(case: dict[str, Any], filters: int) -> None:
    check(conv2d_model(filters=filters, **case))


@pytest.mark.parametrize("y_scale", [1e6, 1e-4])
def test_extreme_output_scales(y_scale: float) -> None:
    """Results that vanish, and results that saturate."""
    check(conv2d_model(y=Quant(y_scale, 3)))


def test_on_host() -> None:
    check(conv2d_model(activation="RELU6"), host=True)


CONV_KINDS = [INT16, INT16_BIAS32, INT4, UINT8, pytest.param(INT16_INT4, marks=pytest.mark.slow)]


@pytest.mark.parametrize("kind", CONV_KINDS, ids=str)
def test_kinds(kind: Kind) -> None:
    check_drawn(windows_of("CONV_2D", kind).map(LayerModel.build), FAST)


@pytest.mark.slow
@pytest.mark.parametrize("kind", CONV_KINDS, ids=str)
def test_kinds_often(kind: Kind) -> None:
    check_drawn(windows_of("CONV_2D", kind).map(LayerModel.build), SLOW)


def test_sums_of_64_bits() -> None:
    sums_of_64_bits("CONV_2D", (1, 1, 2, 700))


@pytest.mark.parametrize("kind", [INT16, INT4, UINT8], ids=str)
def test_kinds_on_host(kind: Kind) -> None:
    check(LayerModel("CONV_2D", kind, (1, 5, 6, 3), 6, (3, 3), activation="RELU").build(), host=True)


def test_int16_data_with_4_bit_weights() -> None:
    check(LayerModel("CONV_2D", INT16_INT4, (1, 3, 4, 3), 4, (2, 2)).build())
