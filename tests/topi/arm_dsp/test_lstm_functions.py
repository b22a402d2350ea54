"""The blocks of recurrent/intrin.py against the functions' meaning: all numbers of 16 bits on an emulated core."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from aot.micro.build.toolchain import have_tool
from aot.numerics.fixed_point import sigmoid16 as real_sigmoid16
from aot.numerics.fixed_point import tanh16 as real_tanh16
from aot.tir.builder import IRBuilder
from aot.tir.expr import cast
from aot.tir.function import PrimFunc
from aot.topi.arm_dsp.lstm import MOST_BITS, instructions, numbers, sigmoid16, tanh16
from tests.topi.oncore import interpret, run_on

needs_host = pytest.mark.skipif(not have_tool("gcc"), reason="needs gcc")
needs_board = pytest.mark.skipif(
    not (have_tool("arm-none-eabi-gcc") and have_tool("qemu-system-arm")), reason="needs arm-none-eabi-gcc and QEMU"
)
FUNCTIONS = [None, *range(MOST_BITS + 1)]
TOGETHER = 2
"""Numbers in a block, so that its constants are taken twice."""


def function(bits: int | None, size: int) -> PrimFunc:
    """y = sigmoid or tanh of x."""
    b = IRBuilder("functions")
    x, k = b.input("x", (size,), "int16"), b.input("k", (len(numbers(3 if bits is None else bits + 1)),), "int32", align=4)
    y = b.output("y", (size,), "int16")
    with b.for_("i", size, step=TOGETHER) as i:
        values = b.local("values", (TOGETHER,), "int32")
        for j in range(TOGETHER):
            b.store(values, j, cast("int32", x[i + j]))
        b.block(sigmoid16(TOGETHER) if bits is None else tanh16(TOGETHER, bits), k, values)
        for j in range(TOGETHER):
            b.store(y, i + j, values[j])
    return b.finish()


def arrays(bits: int | None, x: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The operands, and what is to come of them."""
    constants = numbers(3 if bits is None else bits + 1)
    return {"x": x, "k": constants}, real_sigmoid16(x) if bits is None else real_tanh16(x, bits)


@pytest.mark.parametrize("bits", FUNCTIONS)
def test_meaning(bits: int | None) -> None:
    x = np.array([0, 1, -1, 2, -32768, 32767, 4095, -4097, 16384, -16384], np.int16)
    inputs, expected = arrays(bits, x)
    np.testing.assert_array_equal(interpret(function(bits, len(x)), inputs)["y"], expected)


def test_length() -> None:
    """What the cost of the kernels says."""
    assert [instructions(bits) for bits in FUNCTIONS] == [46, 45, 47, 50, 52]


@pytest.mark.slow
@needs_host
@pytest.mark.parametrize("bits", FUNCTIONS)
def test_host(bits: int | None, tmp_path: Path) -> None:
    check(bits, "host", tmp_path)


@pytest.mark.qemu
@needs_board
@pytest.mark.parametrize("bits", FUNCTIONS)
def test_board(bits: int | None, tmp_path: Path) -> None:
    check(bits, "mps2-an386", tmp_path)


def check(bits: int | None, board: str, folder: Path) -> None:
    """All numbers."""
    x = np.arange(-32768, 32768).astype(np.int16)
    inputs, expected = arrays(bits, x)
    outputs, _ = run_on(function(bits, len(x)), inputs, board=board, folder=folder)
    np.testing.assert_array_equal(outputs["y"], expected)
