"""Kernels for the layers of one position that a window which moves leaves: what they take, and their meaning."""

from __future__ import annotations

import pytest

from aot.driver.build import compile_model
from aot.driver.options import Options
from aot.executor.lower.groups import group_of
from aot.target.target import find_target
from aot.testing.tcn import Tcn, tcn
from aot.topi.arm_dsp.push.intrin import Steps, dot_instructions, dot_steps
from aot.topi.strategy import implementations
from tests.topi.layers import Layer, build, check

M4 = find_target("cortex-m4")
DENSE = next(i for i in implementations("nn.dense") if i.name == "arm_dsp.dense_pairs")
WINDOW = next(i for i in implementations("nn.depthwise_conv2d") if i.name == "arm_dsp.depthwise_window")


@pytest.mark.parametrize(("depth", "channels"), [(4, 1), (5, 4), (31, 5), (64, 7)])
def test_a_row_equals_the_meaning(depth: int, channels: int) -> None:
    """Depths that end within a quad, blocks of channels that are not whole."""
    for rounding in ("double", "single"):
        assert check(DENSE, Layer("dense", (1, depth), (channels, depth), rounding=rounding, seed=depth), M4) >= 1


@pytest.mark.parametrize("size", [(1, 1, 4), (5, 1, 8), (3, 3, 12)])
def test_a_window_equals_the_meaning(size: tuple[int, int, int]) -> None:
    assert check(WINDOW, Layer("dw", (1, *size), (1, *size), seed=size[2]), M4) >= 1


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
