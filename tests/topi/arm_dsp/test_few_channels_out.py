"""The kernels for one or two output channels: what they take, their meaning, blocks and estimates on an emulated core."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aot.executor.candidates import group_of
from aot.ir.type import TensorType, per_tensor
from aot.micro.board import load_board
from aot.op.nn.conv import Conv2DTransposeAttrs
from aot.op.qnn.quantize import RequantizeAttrs
from aot.relay.expr import Function, Var, call, const
from aot.target.target import find_target
from aot.tir.builder import IRBuilder
from aot.tir.expr import imm
from aot.topi.arm_dsp.few_channels import LANES, MOST_STEP, Run, dot_4, widen_4
from aot.topi.strategy import implementations
from aot.tune.measure import MeasureInput, measure
from tests.topi.intrin.test_intrin import needs_board
from tests.topi.layers import Layer, build, check
from tests.topi.oncore import interpret, run_on

FEW = next(i for i in implementations("nn.conv2d") if i.name == "arm_dsp.conv2d_few")
TRANSPOSED = next(i for i in implementations("nn.conv2d_transpose") if i.name == "arm_dsp.conv2d_transpose_few")
M4 = find_target("cortex-m4")

LAYERS = [
    Layer("conv", (1, 9, 11, 2), (1, 7, 7, 2), padding=(3, 3, 3, 3), pad_value=5),
    Layer("conv", (2, 6, 9, 5), (2, 3, 3, 5), (1, 2), (1, 1, 0, 1), rounding="single"),
    Layer("conv", (1, 9, 6, 3), (1, 3, 2, 3), (1, 1), (2, 0, 2, 0), (2, 1), pad_value=-128, out_zp=7),
    Layer("conv", (1, 9, 3, 1), (2, 2, 1, 1), (3, 1), out_zp=-3, per_channel=False, clip=(-90, 80)),
]
"""Rows that end within four bytes, windows of odd length, images narrower than four windows, strides past a window."""


@pytest.mark.parametrize("layer", LAYERS)
def test_equals_meaning(layer: Layer) -> None:
    assert check(FEW, layer, M4) >= 2


def test_what_is_refused() -> None:
    """Three channels, rows of one tap, gaps between columns, a step or rows that are too long, cores without SMLAD."""
    taken = Layer("conv", (1, 8, 8, 4), (2, 3, 3, 4))
    wide = MOST_STEP // 2
    assert FEW.accepts(group_of(build(taken)), M4)
    assert FEW.accepts(group_of(build(replace(taken, data=(1, 8, 8, wide), weight=(1, 3, 3, wide), strides=(1, 2)))), M4)
    for layer in (
        replace(taken, weight=(3, 3, 3, 4)),
        replace(taken, weight=(1, 1, 1, 4)),
        replace(taken, dilation=(1, 2)),
        replace(taken, data=(1, 8, 8, wide + 1), weight=(1, 3, 3, wide + 1), strides=(1, 2)),
        replace(taken, data=(1, 8, 700, 4)),
    ):
        assert not FEW.accepts(group_of(build(layer)), M4)
    assert not FEW.accepts(group_of(build(taken)), find_target("cortex-m3"))


@pytest.mark.qemu
@needs_board
@pytest.mark.parametrize("run", [Run(1, 3), Run(2, 4), Run(7, 14), Run(24, 5), Run(40, 16)])
def test_windows_on_the_core(run: Run, tmp_path: Path) -> None:
    """Pairs left over, loops around several, windows that begin within a word."""
    rng = np.random.default_rng(run.pairs)
    b = IRBuilder("windows")
    x = b.input("x", (3 * run.step + 2 * run.pairs,), "int16", align=4)
    w = b.input("w", (2 * run.pairs,), "int16", align=4)
    y = b.output("y", (4,), "int32")
    acc = b.local("acc", (4,), "int32", init=imm(-3))
    b.block(dot_4(run), x, w, acc)
    for p in range(4):
        b.store(y, p, acc[p])
    func = b.finish()
    inputs = {
        "x": rng.integers(-255, 256, x.shape).astype(np.int16),
        "w": rng.integers(-128, 128, w.shape).astype(np.int16),
    }
    actual, _ = run_on(func, inputs, board="mps2-an386", folder=tmp_path)
    np.testing.assert_array_equal(actual["y"], interpret(func, inputs)["y"])


@pytest.mark.qemu
@needs_board
@pytest.mark.parametrize("zp", [-128, 3, 127])
def test_rows_as_halves_on_the_core(zp: int, tmp_path: Path) -> None:
    b = IRBuilder("row")
    count = 3 * LANES
    x, y = b.input("x", (count,), "int8"), b.output("y", (count,), "int16", align=4)
    b.block(widen_4(), x, y, imm(zp), imm(count))
    func = b.finish()
    inputs = {"x": np.array([-128, 127, 0, -1, 1, 127, -128, 5, -128, -127, 126, 127], np.int8)}
    actual, _ = run_on(func, inputs, board="mps2-an386", folder=tmp_path)
    np.testing.assert_array_equal(actual["y"], inputs["x"].astype(np.int16) - zp)


@pytest.mark.qemu
@needs_board
def test_estimates_are_near_what_is_counted() -> None:
    """Within 10 %, and exact: a map of 7 by 7 taps, wide rows, two channels, padding of whole rows, one row of taps."""
    layers = [
        Layer("conv", (1, 24, 24, 2), (1, 7, 7, 2), padding=(3, 3, 3, 3)),
        Layer("conv", (1, 11, 17, 64), (1, 3, 3, 64), (1, 2)),
        Layer("conv", (1, 21, 10, 8), (2, 3, 3, 8), (1, 2), (1, 1, 1, 1)),
        Layer("conv", (1, 20, 4, 12), (1, 5, 3, 12), (1, 1), (4, 1, 4, 1), (2, 1)),
        Layer("conv", (1, 11, 24, 24), (2, 1, 5, 24)),
    ]
    funcs = [build(layer) for layer in layers]
    lowered = [FEW.lower(group_of(func), M4, "kernel") for func in funcs]
    given = [
        MeasureInput(str(i), func, (low.func.attrs.kernel,)) for i, (func, low) in enumerate(zip(funcs, lowered, strict=True))
    ]
    for result, low in zip(measure(given, load_board("mps2-an386"), M4), lowered, strict=True):
        assert not result.wrong
        assert result.count == pytest.approx(low.instructions, rel=0.1)


def transposed(image: tuple[int, int], depth: int, kernel: tuple[int, int], *, channels: int = 1) -> Function:
    """Of stride 2, or 1 along an axis of one row, to as many rows and columns as that makes of the image."""
    rng = np.random.default_rng(depth)
    x = Var("x", TensorType((1, *image, depth), "int8", per_tensor(1.0, -128)))
    weights = rng.integers(-127, 128, (channels, *kernel, depth)).astype(np.int8)
    strides = (1 if kernel[0] == 1 else 2, 2)
    attrs = Conv2DTransposeAttrs(strides, (0, 0), (image[0] * strides[0], image[1] * strides[1]), -128)
    requant = RequantizeAttrs((1340000000,) * channels, (-9,) * channels, 5, -128, 127, "double")
    body = call("qnn.requantize", [call("nn.conv2d_transpose", [x, const(weights)], attrs)], requant)
    return Function((x,), body, {"Primitive": 1})


def test_what_is_refused_of_transposed_ones() -> None:
    """Three channels, columns further apart than a load reaches, rows that are too long, cores without SMLAD."""
    taken = transposed((4, 4), MOST_STEP, (3, 3), channels=2)
    assert TRANSPOSED.accepts(group_of(taken), M4)
    assert not TRANSPOSED.accepts(group_of(taken), find_target("cortex-m3"))
    for func in (
        transposed((4, 4), 4, (3, 3), channels=3),
        transposed((4, 4), MOST_STEP + 1, (3, 3)),
        transposed((4, 1100), 4, (3, 3)),
    ):
        assert not TRANSPOSED.accepts(group_of(func), M4)


@pytest.mark.qemu
@needs_board
def test_estimates_of_transposed_ones_are_near_what_is_counted() -> None:
    """Within 10 %, and exact; the first, the last layer of an autoencoder, within 1.5 instructions a multiply-accumulate."""
    funcs = [
        transposed((24, 24), 16, (3, 3)),
        transposed((12, 12), 16, (4, 4), channels=2),
        transposed((1, 64), 16, (1, 4)),
        transposed((24, 22), 4, (2, 2)),
    ]
    lowered = [TRANSPOSED.lower(group_of(func), M4, "kernel") for func in funcs]
    given = [MeasureInput(str(i), f, (low.func.attrs.kernel,)) for i, (f, low) in enumerate(zip(funcs, lowered, strict=True))]
    results = list(measure(given, load_board("mps2-an386"), M4))
    for result, low in zip(results, lowered, strict=True):
        assert not result.wrong
        assert result.count == pytest.approx(low.instructions, rel=0.1)
    assert results[0].count < 1.5 * lowered[0].func.attrs.macs
