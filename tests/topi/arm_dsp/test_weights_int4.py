"""Kernels of packed 4-bit weights: their blocks against plain products, which layers they take, and what the weights cost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aot.executor.candidates import candidates, group_of
from aot.executor.config import SelectionConfig
from aot.target.target import find_target
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import cast, imm
from aot.tir.function import PrimFunc
from aot.topi.arm_dsp.weights import dot_w4, matmul_w4, nibble_bias_words, nibble_words, pack_w4
from aot.topi.strategy import OpImplementation, implementations
from tests.topi.arm_dsp.test_weights_int8 import Case, needs_board, needs_host
from tests.topi.layers import Layer, build, check
from tests.topi.oncore import interpret, run_on


def case(pixels: int, channels: int, words: int, *, unroll: int, rest: int = 0, offset: int = 0) -> Case:
    """`channels` sums for each of `pixels` rows of data that start at byte `offset`, times 16, modulo 2^32."""
    rng = np.random.default_rng(words)
    depth = 8 * words
    w = rng.integers(-8, 8, (channels, depth))
    w[:, :4] = [-8, -8, 7, -8]
    x = rng.integers(-128, 128, offset + pixels * depth).astype(np.int8)
    x[offset : offset + 4] = [-128, 127, -128, -128]
    bias = rng.integers(-1000, 1000, channels)
    packed = nibble_words(w).reshape(channels, words, 2).transpose(1, 0, 2)
    inputs = {"x": x, "w": np.ascontiguousarray(packed), "bias": nibble_bias_words(bias, w)}
    expected = 16 * (bias[:, None] + w @ x[offset:].astype(np.int64).reshape(pixels, depth).T) & 0xFFFFFFFF
    return _function(pixels, channels, words, unroll=unroll, rest=rest, offset=offset), inputs, expected.astype(np.uint32)


def _function(pixels: int, channels: int, words: int, *, unroll: int, rest: int, offset: int) -> PrimFunc:
    b = IRBuilder("w4")
    x = b.input("x", (offset + 8 * pixels * words,), "int8", align=4)
    w = b.input("w", (words, channels, 2), "int16", align=4)
    bias = b.input("bias", (channels,), "int32")
    y = b.output("y", (channels, pixels), "int32")
    data = b.output("data", (2 * words, pixels, 4), "int16", align=4)
    sums = b.output("sums", (pixels,), "int32")
    for p in range(pixels):
        b.store(sums, p, 0)
        b.block(pack_w4(pixels, 2), region(x, offset + 8 * p * words), region(data, 2 * p), region(sums, p), imm(2 * words))
    acc = b.local("acc", (channels * pixels,), "int32")
    for i in range(channels * pixels):
        b.store(acc, i, cast("int32", cast("uint32", bias[i // pixels]) + cast("uint32", sums[i % pixels])))
    block = matmul_w4(unroll, rest) if pixels == 3 else dot_w4(channels, unroll, rest)
    b.block(block, w, data, acc, imm(words))
    for i in range(channels * pixels):
        b.store(y, (i // pixels, i % pixels), acc[i])
    return b.finish()


SHAPES = [(1, 1, 1, 1, 0), (1, 2, 6, 3, 0), (1, 3, 8, 4, 0), (1, 4, 7, 2, 1), (1, 4, 1, 2, 1), (3, 2, 2, 2, 0)]
SHAPES += [(3, 2, 12, 4, 0), (3, 2, 1, 2, 1), (3, 2, 11, 2, 1)]
shapes = pytest.mark.parametrize(("pixels", "channels", "words", "unroll", "rest"), SHAPES)


@shapes
def test_in_the_interpreter(pixels: int, channels: int, words: int, unroll: int, rest: int) -> None:
    func, inputs, expected = case(pixels, channels, words, unroll=unroll, rest=rest)
    np.testing.assert_array_equal(interpret(func, inputs)["y"].view(np.uint32), expected)


@pytest.mark.slow
@needs_host
def test_on_the_host(tmp_path: Path) -> None:
    func, inputs, expected = case(3, 2, 11, unroll=2, rest=1)
    np.testing.assert_array_equal(run_on(func, inputs, board="host", folder=tmp_path)[0]["y"].view(np.uint32), expected)


@pytest.mark.qemu
@needs_board
@shapes
def test_on_the_core(pixels: int, channels: int, words: int, unroll: int, rest: int, tmp_path: Path) -> None:
    """Rows of data at an odd address."""
    func, inputs, expected = case(pixels, channels, words, unroll=unroll, rest=rest, offset=3)
    actual, _ = run_on(func, inputs, board="mps2-an386", folder=tmp_path)
    np.testing.assert_array_equal(actual["y"].view(np.uint32), expected)


def impl(anchor: str, name: str) -> OpImplementation:
    return next(i for i in implementations(anchor) if i.name == name)


CONV = [
    Layer("conv", (1, 3, 3, 8), (8, 1, 1, 8), out_zp=5, stored="int4"),
    Layer("conv", (1, 1, 4, 3), (5, 1, 1, 3), per_channel=False, out_zp=-20, stored="int4"),
    Layer("conv", (1, 6, 5, 5), (3, 3, 3, 5), padding=(1, 1, 1, 1), pad_value=7, stored="int4", rounding="single"),
    Layer("conv", (2, 9, 5, 1), (2, 3, 2, 1), strides=(2, 1), padding=(0, 0, 1, 1), dilation=(2, 2), out_zp=5, stored="int4"),
]
DENSE = [
    Layer("dense", (1, 37), (7, 37), rounding="single", per_channel=False, stored="int4"),
    Layer("dense", (2, 3), (5, 3), out_zp=7, per_channel=False, stored="int4"),
    Layer("dense", (3, 44), (9, 44), rounding="single", out_zp=-3, clip=(-90, 80), ends=True, stored="int4"),
]


@pytest.mark.parametrize("common", ["", "_common"])
@pytest.mark.parametrize("layer", CONV + DENSE)
def test_layers_equal_their_meaning(layer: Layer, common: str) -> None:
    anchor = f"nn.{layer.kind}2d" if layer.kind == "conv" else "nn.dense"
    kernel = impl(anchor, f"arm_dsp.{anchor[3:]}_w4{common}")
    assert check(kernel, layer, find_target("cortex-m4")) >= 2


def test_only_layers_that_keep_nibbles_are_taken() -> None:
    target = find_target("cortex-m4")
    for layer, taken in ((CONV[0], True), (replace(CONV[0], stored="int8"), False)):
        assert impl("nn.conv2d", "arm_dsp.conv2d_w4").accepts(group_of(build(layer)), target) == taken
    assert not impl("nn.conv2d", "arm_dsp.conv2d_w4").accepts(group_of(build(CONV[0])), find_target("cortex-m3"))


def test_weights_take_half_a_byte() -> None:
    target = find_target("cortex-m4")
    for layer in (Layer("dense", (1, 64), (16, 64)), Layer("conv", (1, 3, 3, 64), (16, 1, 1, 64))):
        anchor = "nn.dense" if layer.kind == "dense" else "nn.conv2d"
        group = group_of(build(replace(layer, stored="int4")))
        sizes = [
            sum(c.nbytes for c in impl(anchor, f"arm_dsp.{anchor[3:]}_w{bits}").lower(group, target, "kernel").constants.values())
            for bits in (4, 8)
        ]
        assert sizes[1] - sizes[0] == 16 * 64 // 2


def test_size_keeps_large_matrices_packed() -> None:
    target = find_target("cortex-m4")
    for stored, taken in (("int4", {True}), ("int8", {False})):
        layer = Layer("conv", (1, 3, 3, 64), (64, 1, 1, 64), stored=stored)
        found = candidates(build(layer), target, "kernel", SelectionConfig(opt="size"))
        assert {c.constants < 64 * 64 for c in found} == taken
    small = candidates(build(CONV[0]), target, "kernel", SelectionConfig(opt="size"))
    assert any(c.kernel.startswith("arm_dsp.conv2d_w8") for c in small)
