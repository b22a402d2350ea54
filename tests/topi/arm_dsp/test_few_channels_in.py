"""The kernel for few input channels against the operators' meaning, in the TIR interpreter and on an emulated core."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from aot.executor.candidates import group_of
from aot.micro.build.toolchain import have_tool
from aot.target.target import find_target
from aot.tir.builder import IRBuilder
from aot.topi.arm_dsp.few_channels import pixels_2, records
from aot.topi.strategy import implementations
from tests.topi.layers import Layer, build, check
from tests.topi.oncore import interpret, run_on

SMLAD = next(i for i in implementations("nn.conv2d") if i.name == "arm_dsp.conv2d_smlad")
M4 = find_target("cortex-m4")

needs_board = pytest.mark.skipif(
    not (have_tool("arm-none-eabi-gcc") and have_tool("qemu-system-arm")), reason="needs arm-none-eabi-gcc and QEMU"
)


@pytest.mark.parametrize("depth", [5, 6, 7, 8])
@pytest.mark.parametrize(("rows", "channels"), [((3, 5), 1), ((3, 3), 6), ((2, 4), 17), ((1, 2), 16)])
@pytest.mark.parametrize("rounding", ["double", "single"])
def test_kernel_equals_meaning(depth: int, rows: tuple[int, int], channels: int, rounding: str) -> None:
    layer = Layer("conv", (1, *rows, depth), (channels, 1, 1, depth), rounding=rounding, out_zp=-128)
    assert check(SMLAD, layer, M4) >= 2


def test_what_is_refused() -> None:
    """Signed results with double rounding, clamps, other depths, windows."""
    taken = Layer("conv", (1, 2, 2, 8), (4, 1, 1, 8))
    assert SMLAD.accepts(group_of(build(taken)), M4)
    for layer in (
        Layer("conv", (1, 2, 2, 8), (4, 1, 1, 8), out_zp=0),
        Layer("conv", (1, 2, 2, 8), (4, 1, 1, 8), clip=(-128, 100)),
        Layer("conv", (1, 2, 2, 9), (4, 1, 1, 9)),
        Layer("conv", (1, 1, 1, 8), (4, 1, 1, 8)),
        Layer("conv", (1, 4, 4, 8), (4, 1, 1, 8), strides=(2, 2)),
    ):
        assert not SMLAD.accepts(group_of(build(layer)), M4)
    assert not SMLAD.accepts(group_of(build(taken)), find_target("cortex-m3"))


@pytest.mark.qemu
@needs_board
@pytest.mark.parametrize(("depth", "channels"), [(5, 1), (7, 3), (8, 10)])
def test_block_on_the_core(tmp_path: Path, depth: int, channels: int) -> None:
    rng = np.random.default_rng(depth)
    b = IRBuilder("pixels")
    x = b.input("x", (2 * depth,), "int8", align=4)
    params = b.input("params", (7 * channels,), "int32")
    y = b.output("y", (2 * channels,), "int8")
    b.block(pixels_2(depth, channels, 12), x, params, y)
    func = b.finish()
    weights = rng.integers(-(1 << 15), 1 << 15, (channels, depth))
    bias, constant = (rng.integers(-(1 << 20), 1 << 20, channels) for _ in range(2))
    stream = records(weights, bias, rng.integers(1 << 30, 1 << 31, channels), constant)
    inputs = {"x": rng.integers(-128, 128, 2 * depth).astype(np.int8), "params": stream}
    actual, _ = run_on(func, inputs, board="mps2-an386", folder=tmp_path)
    expected = interpret(func, inputs)["y"]
    np.testing.assert_array_equal(actual["y"], expected)
    assert len(np.unique(expected)) > 1
