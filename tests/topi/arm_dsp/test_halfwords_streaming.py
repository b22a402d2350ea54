"""Kernels for the layers of one position that a window which moves leaves: what they take, and their meaning."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aot.driver.build import compile_model
from aot.driver.options import Options
from aot.executor.candidates import group_of
from aot.target.target import find_target
from aot.topi.arm_dsp.halfwords import Steps, dot_instructions, dot_steps
from aot.topi.strategy import implementations
from tests.stateful import Tcn, tcn
from tests.topi.layers import Layer, build, check

M4 = find_target("cortex-m4")
DENSE = next(i for i in implementations("nn.dense") if i.name == "arm_dsp.dense_pairs")
CONV = next(i for i in implementations("nn.conv2d") if i.name == "arm_dsp.conv2d_pairs")
WINDOW = next(i for i in implementations("nn.depthwise_conv2d") if i.name == "arm_dsp.depthwise_window")


@pytest.mark.parametrize(("depth", "channels"), [(4, 1), (5, 4), (31, 5), (64, 7)])
def test_a_row_equals_the_meaning(depth: int, channels: int) -> None:
    """Depths that end within a quad, blocks of channels that are not whole."""
    for rounding in ("double", "single"):
        assert check(DENSE, Layer("dense", (1, depth), (channels, depth), rounding=rounding, seed=depth), M4) >= 1


@pytest.mark.parametrize("size", [(1, 1, 4), (5, 1, 8), (3, 3, 12)])
def test_a_window_equals_the_meaning(size: tuple[int, int, int]) -> None:
    assert check(WINDOW, Layer("dw", (1, *size), (1, *size), seed=size[2]), M4) >= 1


@pytest.mark.parametrize(
    ("data", "weight", "stride"),
    [((4, 5, 4), (5, 3, 2, 4), 1), ((10, 7, 16), (7, 5, 4, 16), 1), ((5, 5, 8), (3, 2, 3, 8), 2), ((3, 4, 2), (1, 2, 2, 2), 1)],
)
def test_pixels_in_pairs_equal_the_meaning(data: tuple[int, ...], weight: tuple[int, ...], stride: int) -> None:
    """Pixels and channels that do not come out even, runs of several blocks of code."""
    layer = Layer("conv", (1, *data), weight, strides=(stride, stride), dilation=(1, 1), seed=weight[0])
    assert check(CONV, layer, M4) >= 1
    if data[0] == 10:
        assert check(CONV, replace(layer, data=(1, 21, 9, 16), dilation=(2, 2)), M4) >= 1, "runs of one column"


def test_pairs_need_whole_quads_and_no_padding() -> None:
    for layer in (
        Layer("conv", (1, 4, 4, 3), (4, 2, 3, 3)),
        Layer("conv", (1, 4, 4, 4), (4, 3, 3, 4), padding=(1, 1, 1, 1)),
        Layer("conv", (1, 3, 2, 4), (4, 3, 2, 4)),
        Layer("conv", (1, 4, 4, 4), (4, 1, 1, 4)),
    ):
        assert not CONV.accepts(group_of(build(layer)), M4)
    assert not CONV.accepts(group_of(build(Layer("conv", (1, 4, 5, 4), (5, 3, 2, 4)))), find_target("cortex-m3"))


def test_one_position_alone_is_taken() -> None:
    assert not DENSE.accepts(group_of(build(Layer("dense", (2, 8), (4, 8)))), M4)
    assert not DENSE.accepts(group_of(build(Layer("dense", (1, 8), (4, 8)))), find_target("cortex-m3"))
    assert not WINDOW.accepts(group_of(build(Layer("dw", (1, 4, 1, 8), (1, 3, 1, 8)))), M4)
    assert not WINDOW.accepts(group_of(build(Layer("dw", (1, 3, 1, 6), (1, 3, 1, 6)))), M4)


def test_steps_cover_the_words() -> None:
    assert dot_steps(48) == Steps(3, 32, 1, 0)
    for quads in range(1, 400):
        steps = dot_steps(quads)
        assert steps.words * steps.unroll * steps.loops + steps.rest == 2 * quads
        assert dot_instructions(4, quads) <= 11 * quads + 3 + 2 * steps.loops


def test_models_whose_window_moves_have_them_and_others_do_not() -> None:
    small = tcn(Tcn(frames=20, features=8, channels=8, classes=3, dilations=(1, 2)))
    kernels = [_kernels(small, slide) for slide in ((), (("x", 1),))]
    assert not any("dense_pairs" in k for k in kernels[0])
    assert any("dense_pairs" in k for k in kernels[1])


def _kernels(model: bytes, slide: tuple[tuple[str, int], ...]) -> set[str]:
    layers = compile_model(model, options=Options(slide=slide)).artifact.metadata["layers"]
    return {layer["kernel"] for layer in layers}
