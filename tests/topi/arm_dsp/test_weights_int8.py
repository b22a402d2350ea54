"""The blocks of int8 weights against plain products, in the interpreter, as portable C and on emulated cores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from aot.micro.build.toolchain import have_tool
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import imm
from aot.tir.function import PrimFunc
from aot.topi.arm_dsp.weights import (
    bias_words,
    direct_bias_words,
    dot_w8,
    dot_w8_direct,
    matmul_w8,
    pack_w8,
    swapped,
    weight_words,
)
from tests.topi.oncore import interpret, run_on

needs_host = pytest.mark.skipif(not have_tool("gcc"), reason="needs gcc")
needs_board = pytest.mark.skipif(
    not (have_tool("arm-none-eabi-gcc") and have_tool("qemu-system-arm")), reason="needs arm-none-eabi-gcc and QEMU"
)
Case = tuple[PrimFunc, dict[str, np.ndarray], np.ndarray]


def case(pixels: int, channels: int, quads: int, *, unroll: int, rest: int = 0, offset: int = 0) -> Case:
    """`channels` sums for each of `pixels` rows of data that start at byte `offset`, times 256, modulo 2^32."""
    rng = np.random.default_rng(quads)
    depth = 4 * quads
    w = rng.integers(-127, 128, (channels, depth))
    w[:, :4] = [-127, -127, 127, -127]
    x = rng.integers(-128, 128, offset + pixels * depth).astype(np.int8)
    x[offset : offset + 4] = [-128, 127, -128, -128]
    bias = rng.integers(-1000, 1000, channels)
    words = weight_words(w).reshape(channels, quads, 2).transpose(1, 0, 2)
    inputs = {"x": x, "w": np.ascontiguousarray(words), "bias": bias_words(bias, w)}
    rows = x[offset:].astype(np.int64).reshape(pixels, depth)
    expected = 256 * (bias[:, None] + w.astype(np.int64) @ rows.T) & 0xFFFFFFFF
    return _function(pixels, channels, quads, unroll=unroll, rest=rest, offset=offset), inputs, expected.astype(np.uint32)


def _function(pixels: int, channels: int, quads: int, *, unroll: int, rest: int, offset: int) -> PrimFunc:
    b = IRBuilder("w8")
    x = b.input("x", (offset + 4 * pixels * quads,), "int8", align=4)
    w = b.input("w", (quads, channels, 2), "int16", align=4)
    bias = b.input("bias", (channels,), "int32")
    y = b.output("y", (channels, pixels), "int32")
    words = b.output("words", (quads, pixels, 4), "int16", align=4)
    for p in range(pixels):
        b.block(pack_w8(pixels, 1), region(x, offset + 4 * p * quads), region(words, 4 * p), imm(quads))
    acc = b.local("acc", (channels * pixels,), "int32")
    for c in range(channels):
        for p in range(pixels):
            b.store(acc, c * pixels + p, bias[c])
    block = matmul_w8(unroll, rest) if pixels == 3 else dot_w8(channels, unroll, rest)
    b.block(block, w, words, acc, imm(quads))
    for i in range(channels * pixels):
        b.store(y, (i // pixels, i % pixels), acc[i])
    return b.finish()


def direct_case(channels: int, quads: int, *, unroll: int, rest: int = 0, offset: int = 0) -> Case:
    """Sums of one row as `case` has them, by the block that takes plain bytes."""
    rng = np.random.default_rng(quads)
    w = rng.integers(-127, 128, (channels, 4 * quads))
    w[:, :4] = [-127, 127, 127, -127]
    x = rng.integers(-128, 128, offset + 4 * quads).astype(np.int8)
    x[offset : offset + 4] = [-128, -128, 127, -128]
    bias = rng.integers(-1000, 1000, channels)
    words = weight_words(swapped(w)).reshape(channels, quads, 2).transpose(1, 0, 2)
    inputs = {"x": x, "w": np.ascontiguousarray(words), "bias": direct_bias_words(bias, swapped(w))}
    expected = (256 * (bias + w.astype(np.int64) @ x[offset:].astype(np.int64)) & 0xFFFFFFFF).astype(np.uint32)[:, None]
    return _direct_function(channels, quads, unroll=unroll, rest=rest, offset=offset), inputs, expected


def _direct_function(channels: int, quads: int, *, unroll: int, rest: int, offset: int) -> PrimFunc:
    b = IRBuilder("w8")
    x = b.input("x", (offset + 4 * quads,), "int8", align=4)
    weights = b.input("w", (quads, channels, 2), "int16", align=4)
    start = b.input("bias", (channels,), "int32")
    y = b.output("y", (channels, 1), "int32")
    acc = b.local("acc", (channels,), "int32")
    for c in range(channels):
        b.store(acc, c, start[c])
    b.block(dot_w8_direct(channels, unroll, rest), weights, region(x, offset), acc, imm(quads))
    for c in range(channels):
        b.store(y, (c, 0), acc[c])
    return b.finish()


SHAPES = [(1, 1, 1, 1, 0), (1, 2, 6, 3, 0), (1, 3, 8, 8, 0), (1, 4, 12, 4, 0), (1, 4, 7, 4, 1), (1, 4, 3, 4, 1), (3, 2, 2, 2, 0)]
SHAPES += [(3, 2, 24, 8, 0), (3, 2, 1, 4, 1), (3, 2, 4, 4, 1), (3, 2, 11, 4, 1)]
shapes = pytest.mark.parametrize(("pixels", "channels", "quads", "unroll", "rest"), SHAPES)


@shapes
def test_in_the_interpreter(pixels: int, channels: int, quads: int, unroll: int, rest: int) -> None:
    func, inputs, expected = case(pixels, channels, quads, unroll=unroll, rest=rest)
    np.testing.assert_array_equal(interpret(func, inputs)["y"].view(np.uint32), expected)


DIRECT = [(1, 1, 1, 0), (2, 6, 3, 0), (3, 8, 8, 0), (4, 12, 4, 0), (4, 7, 4, 1), (4, 3, 4, 1)]
direct_shapes = pytest.mark.parametrize(("channels", "quads", "unroll", "rest"), DIRECT)


@direct_shapes
def test_plain_bytes_in_the_interpreter(channels: int, quads: int, unroll: int, rest: int) -> None:
    func, inputs, expected = direct_case(channels, quads, unroll=unroll, rest=rest)
    np.testing.assert_array_equal(interpret(func, inputs)["y"].view(np.uint32), expected)


@pytest.mark.qemu
@needs_board
@direct_shapes
def test_plain_bytes_on_the_core(tmp_path: Path, channels: int, quads: int, unroll: int, rest: int) -> None:
    func, inputs, expected = direct_case(channels, quads, unroll=unroll, rest=rest, offset=1)
    actual, _ = run_on(func, inputs, board="mps2-an386", folder=tmp_path)
    np.testing.assert_array_equal(actual["y"].view(np.uint32), expected)


@needs_host
def test_as_portable_c(tmp_path: Path) -> None:
    func, inputs, expected = case(3, 2, 5, unroll=5)
    np.testing.assert_array_equal(run_on(func, inputs, board="host", folder=tmp_path)[0]["y"].view(np.uint32), expected)


@pytest.mark.qemu
@needs_board
@shapes
def test_on_the_core(tmp_path: Path, pixels: int, channels: int, quads: int, unroll: int, rest: int) -> None:
    """Data at an odd address, as the second pixel of a tensor of odd depth has."""
    func, inputs, expected = case(pixels, channels, quads, unroll=unroll, rest=rest, offset=1)
    actual, _ = run_on(func, inputs, board="mps2-an386", folder=tmp_path)
    np.testing.assert_array_equal(actual["y"].view(np.uint32), expected)


@pytest.mark.qemu
@needs_board
@pytest.mark.parametrize("board", ["mps2-an500", "mps2-an505"])
def test_on_other_cores(tmp_path: Path, board: str) -> None:
    func, inputs, expected = case(3, 2, 16, unroll=8)
    actual, _ = run_on(func, inputs, board=board, folder=tmp_path)
    np.testing.assert_array_equal(actual["y"].view(np.uint32), expected)
