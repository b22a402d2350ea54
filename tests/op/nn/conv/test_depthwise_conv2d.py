"""DEPTHWISE_CONV_2D: random shapes, strides, dilations, activations and quantisations; int16 data, 4-bit weights, uint8."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from aot.errors import AotError
from aot.testing import depthwise_model
from tests.op._differential import FAST, SLOW, check, check_drawn, main_of
from tests.op._layer_models import INT4, INT16, INT16_INT4, INT16_NO_BIAS, UINT8, Kind, LayerModel
from tests.op._layer_models import windows as windows_of
from tests.op.nn._windows import windows


@given(windows(), st.integers(1, 4))
@FAST
def test_random(case: dict[str, Any], multiplier: int) -> None:
    check(depthwise_model(multiplier=multiplier, **case))


@pytest.mark.slow
@given(windows(), st.integers(1, 9))
@SLOW
def test_random_often(case: dict[str, Any], multiplier: int) -> None:
    check(depthwise_model(multiplier=multiplier, **case))


def test_on_host() -> None:
    check(depthwise_model(multiplier=2), host=True)


DEPTHWISE_KINDS = [INT16, INT16_NO_BIAS, INT4, UINT8]


@pytest.mark.parametrize("kind", DEPTHWISE_KINDS, ids=str)
def test_kinds(kind: Kind) -> None:
    check_drawn(windows_of("DEPTHWISE_CONV_2D", kind).map(LayerModel.build), FAST)


@pytest.mark.slow
@pytest.mark.parametrize("kind", DEPTHWISE_KINDS, ids=str)
def test_kinds_often(kind: Kind) -> None:
    check_drawn(windows_of("DEPTHWISE_CONV_2D", kind).map(LayerModel.build), SLOW)


@pytest.mark.parametrize("kind", [INT16, INT4, UINT8], ids=str)
def test_kinds_on_host(kind: Kind) -> None:
    check(LayerModel("DEPTHWISE_CONV_2D", kind, (1, 5, 6, 3), 2, (3, 3)).build(), host=True)


def test_int16_data_with_4_bit_weights() -> None:
    with pytest.raises(AotError, match="E1203"):  # the reference takes packed weights for bytes there
        main_of(LayerModel("DEPTHWISE_CONV_2D", INT16_INT4, (1, 3, 4, 3), 1, (2, 2)).build())
