"""CONV_2D in groups: slices of channels, or a depthwise convolution, with the bytes of the reference's grouped kernels."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from aot.errors import UnsupportedError
from aot.relay.expr import Call, post_order
from tests.op._differential import FAST, SLOW, check, main_of
from tests.op._layer_models import INT4, INT16, INT16_BIAS32, UINT8, Kind, LayerModel, extremes, grouped

INT8 = Kind("int8", "int8")
KINDS = [INT8, INT16, INT16_BIAS32, INT4, UINT8]


@given(st.sampled_from(KINDS).flatmap(grouped))
@settings(FAST, max_examples=3)
def test_drawn(layer: LayerModel) -> None:
    check(layer.build())


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_drawn_often(kind: Kind) -> None:
    @given(grouped(kind))
    @SLOW
    def test(layer: LayerModel) -> None:
        check(layer.build())

    test()


def operators(layer: LayerModel) -> list[str]:
    return [str(e.op) for e in post_order(main_of(layer.build()).body) if isinstance(e, Call)]


def test_groups_of_channels() -> None:
    layer = LayerModel("CONV_2D", INT8, (1, 4, 5, 6), 4, (3, 3), padding="VALID", activation="RELU", groups=2)
    check(layer.build(), extremes(layer), host=True)
    names = operators(layer)
    assert [names.count(n) for n in ("nn.conv2d", "strided_slice", "concatenate", "nn.depthwise_conv2d")] == [2, 2, 1, 0]


def test_groups_of_one_channel() -> None:
    layer = LayerModel("CONV_2D", INT8, (1, 4, 5, 3), 6, (3, 3), groups=3)
    check(layer.build(), host=True)
    assert [operators(layer).count(n) for n in ("nn.conv2d", "nn.depthwise_conv2d")] == [0, 1]


@pytest.mark.parametrize("kind", [INT8, UINT8], ids=str)
def test_small_groups_go_in_pairs(kind: Kind) -> None:
    layer = LayerModel("CONV_2D", kind, (1, 3, 4, 8), 12, (2, 3), groups=4)
    check(layer.build(), extremes(layer))
    assert operators(layer).count("nn.conv2d") == 2


def test_one_scale_for_all_groups() -> None:
    layer = LayerModel("CONV_2D", INT8, (2, 3, 3, 4), 6, (2, 2), per_channel=False, groups=2)
    check(layer.build(), extremes(layer), [np.full(layer.shape, -128, np.int8)])


@pytest.mark.parametrize(("channels", "filters"), [(6, 3), (5, 4)])
def test_no_whole_number_of_groups(channels: int, filters: int) -> None:
    """Three filters for two groups; five channels in groups of two."""
    with pytest.raises(UnsupportedError, match="E1207"):
        main_of(LayerModel("CONV_2D", INT8, (1, 3, 3, channels), filters, groups=2).build())
