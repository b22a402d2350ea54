"""Images for the boards on desks: linked, looked at section by section, and run where an emulated machine has their map."""

from __future__ import annotations

import functools
import re
import shutil
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

from aot.driver.build import build
from aot.driver.options import Options
from aot.executor.artifact import Artifact
from aot.memory.memory_pools import Pooling
from aot.micro.board import Board, Memory, board_names, load_board
from aot.micro.build.image import symbol_addresses
from aot.micro.build.project import MODES, prepare
from aot.micro.run.runner import run
from aot.support.memory_pool import Pool
from tests.micro.run.test_gdb import LINK, QEMU
from tests.models.golden import FOLDER, load_golden, sets_of

HELLO = "dense"
"""A layer of a few hundred bytes, as a first program has it."""
KWS = "net_kws_dscnn"
VWW = "net_vww_mobilenet"
DESK = [n for n in board_names() if load_board(n).kind == "gdb"]
LIKE = [n for n in DESK if load_board(n).like is not None]
SAMPLE = {("nucleo-h743zi2", KWS), ("alif-e8-hp", HELLO)}
VTOR = struct.pack("<I", 0xE000ED08)
STORE = re.compile(rb"[\xc0-\xcf]\xf8\x08[\x0d\x1d\x2d\x3d\x4d\x5d\x6d\x7d\x8d\x9d\xad\xbd\xcd]")
"""VTOR's address in the literals of the start-up code (Armv6-M), or str.w Rt, [Rn, #0xd08], whose Rn holds 0xe000e000."""
START_UP = 256
"""Bytes of the reset handler and its literals that are looked at."""
ALIGN = 128


@functools.cache
def compiled(name: str, cpu: str, pools: tuple[Pool, ...]) -> Artifact:
    opt = "ram" if name == VWW else "balanced"
    return build(FOLDER / f"{name}.tflite", target=cpu, options=Options(opt=opt, pooling=Pooling(pools, (), ())))


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Objects by core and model: boards with the same core link the same ones."""
    return tmp_path_factory.mktemp("objects")


def region_of(board: Board, start: int, size: int) -> Memory | None:
    return next((m for m in board.memory if m.origin <= start and start + size <= m.origin + m.size), None)


def look_at(elf: Path, board: Board) -> None:
    """Every section in a region that may hold it, the vector table where the region of code begins, VTOR written."""
    with elf.open("rb") as stream:
        image = ELFFile(stream)
        sections = [s for s in image.iter_sections() if s["sh_flags"] & 2 and s["sh_size"]]
        for s in sections:
            region = region_of(board, s["sh_addr"], s["sh_size"])
            assert region is not None, f"{s.name} lies in no memory of {board.name}"
            assert region.access == "rw" or not s["sh_flags"] & 1, f"{s.name} is written, {region.name} is not"
        loads = [p for p in image.iter_segments() if p["p_type"] == "PT_LOAD" and p["p_filesz"]]
        assert all(region_of(board, p["p_paddr"], p["p_filesz"]) is not None for p in loads)
        used = {m.name: sum(s["sh_size"] for s in sections if region_of(board, s["sh_addr"], 1) == m) for m in board.memory}
        assert all(used[m.name] <= m.size for m in board.memory)
        text = next(s for s in sections if s.name == ".text")
        data = text.data()
    code, stack = board.region(board.code), board.region(board.data)
    assert symbol_addresses(elf)["aot_vectors"] == text["sh_addr"] == code.origin
    assert code.origin % ALIGN == 0
    top, reset = struct.unpack_from("<2I", data)
    assert stack.origin < top <= stack.origin + stack.size
    assert top % 8 == 0
    assert reset & 1
    assert region_of(board, reset - 1, 2) == code
    start_up = data[reset - 1 - code.origin :][:START_UP]
    assert VTOR in start_up or STORE.search(start_up), "VTOR is not written"
    assert struct.pack("<I", code.origin) in start_up


def desk_cases(names: tuple[str, ...]) -> list[object]:
    return [pytest.param(b, n, marks=() if (b, n) in SAMPLE else pytest.mark.slow, id=f"{b}-{n}") for b in DESK for n in names]


def test_the_boards_of_desks() -> None:
    assert len(DESK) == 13
    assert LIKE == ["alif-e8-hp", "b-l475e-iot01a", "nrf52840dk", "nucleo-f446re", "nucleo-l4r5zi"]
    for name in DESK:
        board = load_board(name)
        assert board.gdb is not None
        assert board.gdb.counter == ("systick" if board.cpu == "cortex-m0plus" else "dwt")
        assert board.region(board.code).origin % ALIGN == 0


@pytest.mark.qemu
@pytest.mark.parametrize(("name", "model"), desk_cases((HELLO, KWS, VWW)))
def test_an_image_of_every_mode_links(name: str, model: str, objects: Path, tmp_path: Path) -> None:
    board = load_board(name)
    kept = objects / f"{board.cpu}-{'-'.join(board.flags)}-{model}"
    if kept.is_dir():
        shutil.copytree(kept, tmp_path / "p" / "obj")
    project = prepare(compiled(model, board.cpu, board.pools), board, folder=tmp_path / "p")
    for mode in MODES:
        look_at(project.image(mode), board)
    if not kept.is_dir():
        shutil.copytree(tmp_path / "p" / "obj", kept)


def expect(board: Board, model: str, folder: Path) -> int | None:
    golden = load_golden(model)
    result = run(prepare(compiled(model, board.cpu, board.pools), board, folder=folder), sets_of(golden, "in"))
    for got, want in zip(result.outputs, sets_of(golden, "out"), strict=True):
        for g, w in zip(got, want, strict=True):
            np.testing.assert_array_equal(g, w)
    return result.instructions


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("name", "model"),
    [
        pytest.param(b, m, marks=() if (b, m) == ("nucleo-f446re", VWW) else pytest.mark.slow)
        for b in LIKE
        for m in (HELLO, KWS, VWW)
        if (b, m) != ("alif-e8-hp", VWW)  # its constants are in SRAM1, which the machine does not have
    ],
)
def test_images_run_where_a_machine_has_the_map(name: str, model: str, tmp_path: Path) -> None:
    assert expect(load_board(f"qemu:{name}"), model, tmp_path)


@pytest.mark.qemu
def test_code_behind_a_boot_loader(tmp_path: Path) -> None:
    """The Nano's image begins at 0x10000, where no core looks after reset: the GDB client enters it, VTOR does the rest."""
    board = load_board("nano33ble")
    assert board.gdb is not None
    server = ("qemu-system-arm", "-M", "mps2-an386", "-cpu", "cortex-m4", *QEMU, "tcp:127.0.0.1:{port}")
    board = replace(board, gdb=replace(LINK, server=server), tick=load_board("mps2-an386").tick)
    assert expect(board, KWS, tmp_path) == expect(load_board("mps2-an386"), KWS, tmp_path / "native")
