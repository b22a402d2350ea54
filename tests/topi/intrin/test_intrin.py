"""Every intrinsic has one meaning: in Python, as portable C, and as the instruction on an emulated Cortex-M4."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aot.micro.build.toolchain import have_tool
from aot.tir.builder import IRBuilder, region
from aot.tir.function import PrimFunc
from aot.tir.intrin import COperand, Intrin, TensorIntrin
from aot.topi.intrin import scalar
from aot.topi.intrin.scalar import (
    MULHI,
    MULHI_ROUND,
    RDBPOT,
    REQUANTIZE_DOUBLE,
    REQUANTIZE_SINGLE,
    SRDHM,
    rdbpot,
    requantize_double,
    srdhm,
)
from tests.conftest import Golden
from tests.topi.oncore import interpret, run_on

EDGES = [0, 1, -1, 0x7FFFFFFF, -0x80000000, 0x7FFF7FFF, -0x7FFF8000, 0x00008000, -0x7F7F7F80]
Array = np.ndarray[Any, Any]

needs_host = pytest.mark.skipif(not have_tool("gcc"), reason="needs gcc")
needs_board = pytest.mark.skipif(
    not (have_tool("arm-none-eabi-gcc") and have_tool("qemu-system-arm")), reason="needs arm-none-eabi-gcc and QEMU"
)


def words(rng: np.random.Generator, rows: int, count: int) -> Array:
    """int32[rows, count]: random bit patterns after pairings of the edges."""
    values = rng.integers(-(1 << 31), 1 << 31, (rows, count), dtype=np.int64)
    for row in range(rows):
        values[row, : len(EDGES)] = np.roll(EDGES, row)
        values[row, len(EDGES) : 2 * len(EDGES)] = np.roll(EDGES, 2 * row)
    return values.astype(np.int32)


def operands(count: int) -> dict[str, Array]:
    rng = np.random.default_rng(1)
    signed = words(rng, 3, count)
    wide = rng.integers(-(1 << 63), 1 << 63, (1, count), dtype=np.int64)
    shifts = np.stack([rng.integers(0, 32, count), rng.integers(-31, 8, count), rng.integers(-31, 1, count)]).astype(np.int32)
    shifts[0, :4] = [0, 31, 1, 30]
    multiplier = rng.integers(1 << 30, 1 << 31, (1, count), dtype=np.int64).astype(np.int32)
    return {"u": words(rng, 3, count).view(np.uint32), "s": signed, "d": wide, "n": shifts, "m": multiplier}


def scalar_kernel(arrays: dict[str, Array]) -> tuple[PrimFunc, dict[str, list[str]]]:
    """One loop that stores each intrinsic's result; and the names in the order of the rows of each output."""
    b = IRBuilder("intrinsics")
    inputs = {n: b.input(n, a.shape, str(a.dtype)) for n, a in arrays.items()}
    count = arrays["u"].shape[1]
    fixed = {RDBPOT: ("s0", "n0"), REQUANTIZE_DOUBLE: ("s0", "m0", "n1"), REQUANTIZE_SINGLE: ("s0", "m0", "n2")}
    every: list[Intrin] = [*scalar.ALL.values(), MULHI, MULHI_ROUND, SRDHM, *fixed]
    rows: dict[str, list[Intrin]] = {}
    for i in every:
        rows.setdefault(i.dtype, []).append(i)
    outputs = {t: b.output(f"y_{t}", (len(group), count), t) for t, group in rows.items()}
    letter = {"uint32": "u", "int32": "s", "int64": "d"}
    with b.for_("i", count) as at:
        for dtype, group in rows.items():
            for row, intrin in enumerate(group):
                names = fixed.get(intrin) or [f"{letter[a]}{0 if a == 'int64' else k}" for k, a in enumerate(intrin.args)]
                args = [inputs[name[0]][int(name[1]), at] for name in names]
                b.store(outputs[dtype], (row, at), intrin(*args))
    return b.finish(), {f"y_{t}": [i.name for i in group] for t, group in rows.items()}


def compare(board: str, folder: Path, *, count: int = 64) -> None:
    arrays = operands(count)
    func, names = scalar_kernel(arrays)
    expected = interpret(func, arrays)
    actual, _ = run_on(func, arrays, board=board, folder=folder)
    wrong = {
        f"{names[out][row]}: {int(actual[out][row, i])} for {int(expected[out][row, i])}"
        for out in names
        for row, i in np.argwhere(actual[out] != expected[out])
    }
    assert sum(map(len, names.values())) >= 97
    assert not wrong


@needs_host
def test_meaning_equals_portable_c(tmp_path: Path) -> None:
    compare("host", tmp_path)


@pytest.mark.qemu
@needs_board
@pytest.mark.parametrize("board", ["mps2-an385", "mps2-an386", "mps2-an505", "microbit"])
def test_meaning_equals_instructions(tmp_path: Path, board: str) -> None:
    compare(board, tmp_path, count=24 if board == "microbit" else 64)  # 16 KB of RAM


def test_gemmlowp_steps() -> None:
    """The closed forms against gemmlowp's own definition, written with C's division."""
    rng = np.random.default_rng(2)
    for a, m in rng.integers(-(1 << 31), 1 << 31, (2000, 2)).tolist():
        product = a * m
        nudged = product + ((1 << 30) if product >= 0 else 1 - (1 << 30))
        assert srdhm(a, m) == (abs(nudged) >> 31) * (1 if nudged >= 0 else -1)
    assert srdhm(-(1 << 31), -(1 << 31)) == (1 << 31) - 1
    assert [rdbpot(x, 1) for x in (-3, -2, -1, 0, 1, 2, 3)] == [-2, -1, -1, 0, 1, 1, 2]
    assert requantize_double(1000, 1 << 30, -1) == 250


def block_kernel(intrin: TensorIntrin, pairs: int, tiles: int, channels: int) -> PrimFunc:
    """The block applied to `tiles` tiles of weights, accumulators starting at 7."""
    b = IRBuilder("tiles")
    x = b.input("x", (pairs, 2, 2), "int16", align=4)
    w = b.input("w", (tiles, pairs, 4, 2), "int16", align=4)
    y = b.output("y", (tiles, 2, channels), "int32", align=4)
    with b.for_("t", tiles) as t:
        acc = b.local("acc", (2, channels), "int32", init=7)
        b.block(intrin, x, region(w, t * (8 * pairs)), acc)
        for p in range(2):
            for c in range(channels):
                b.store(y, (t, p, c), acc[p, c])
    return b.finish()


def block_case(pairs: int, channels: int = 4) -> tuple[PrimFunc, dict[str, Array], Array]:
    rng = np.random.default_rng(pairs)
    x = rng.integers(-512, 512, (pairs, 2, 2)).astype(np.int16)
    w = rng.integers(-512, 512, (3, pairs, 4, 2)).astype(np.int16)
    expected = 7 + np.einsum("kpj,tkcj->tpc", x.astype(np.int64), w[:, :, :channels].astype(np.int64))
    func = block_kernel(scalar.smlad_2x4(pairs, channels), pairs, 3, channels)
    return func, {"x": x, "w": w}, expected.astype(np.int32)


@pytest.mark.parametrize("pairs", [1, 4, 6, 20])
def test_block_in_the_interpreter(pairs: int) -> None:
    func, inputs, expected = block_case(pairs)
    np.testing.assert_array_equal(interpret(func, inputs)["y"], expected)


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_block_of_fewer_channels_in_the_interpreter(channels: int) -> None:
    func, inputs, expected = block_case(6, channels)
    np.testing.assert_array_equal(interpret(func, inputs)["y"], expected)


def test_block_text(golden: Golden) -> None:
    operands = {"x": COperand(pointer="x"), "w": COperand(pointer="&w[8]"), "acc": COperand(scalars=tuple("abcdefgh"))}
    golden("smlad_2x4.txt", "".join(scalar.smlad_2x4(pairs).emit(operands).text + "\n" for pairs in (3, 10)))
    with pytest.raises(ValueError, match="at least one pair"):
        scalar.smlad_2x4(0)
    assert scalar.saturate("ssat", 8, 5).py(1 << 20) == 127
    assert scalar.saturate("usat", 8).py(-3) == 0


@needs_host
def test_block_on_the_host(tmp_path: Path) -> None:
    func, inputs, expected = block_case(10)
    np.testing.assert_array_equal(run_on(func, inputs, board="host", folder=tmp_path)[0]["y"], expected)


@pytest.mark.qemu
@needs_board
@pytest.mark.parametrize("pairs", [1, 3, 4, 7, 20])
@pytest.mark.parametrize("board", ["mps2-an386", "mps2-an500", "mps2-an505", "mps3-an547"])
def test_block_on_the_board(tmp_path: Path, pairs: int, board: str) -> None:
    func, inputs, expected = block_case(pairs)
    actual, _ = run_on(func, inputs, board=board, folder=tmp_path)
    np.testing.assert_array_equal(actual["y"], expected)


@pytest.mark.qemu
@needs_board
def test_block_is_the_assembly(tmp_path: Path) -> None:
    """16 multiply-accumulates take about 11 instructions: far below what C without SMLAD and LDRD needs."""
    func, inputs, _ = block_case(200)
    _, result = run_on(func, inputs, board="mps2-an386", folder=tmp_path)
    assert result.instructions is not None
    assert result.instructions < 0.75 * 3 * 200 * 16 + 400
