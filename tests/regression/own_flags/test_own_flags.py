"""Firmware with flags of the user's own: position-independent, with stack guards, with registers that nobody may touch."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from aot.driver.build import build
from aot.errors import VerificationError
from aot.micro.board import Board, load_board
from aot.micro.build.image import inspect_image
from aot.micro.build.project import NO_BLOCKS, named_register_flags, prepare, register_flags
from aot.micro.build.toolchain import find_tool, have_tool
from aot.micro.run.runner import run

MODELS = Path(__file__).parents[2] / "models"
NETWORKS = ("net_kws_dscnn", "net_sww")
BOARDS = ("mps2-an385-v6m", "mps2-an385", "mps2-an386", "mps2-an500", "mps2-an505", "mps3-an547")
FLAGS = ("-fPIC", "-fstack-protector-all", "-ffixed-r9", "-ffixed-r11", "-O0", "-Og", "-fno-omit-frame-pointer")
EVERY = list(product(BOARDS, FLAGS, NETWORKS))
SAMPLE = [(BOARDS[2], f, NETWORKS[i % 2]) for i, f in enumerate(FLAGS)] + [
    (b, FLAGS[i % 4], NETWORKS[(i + 1) % 2]) for i, b in enumerate(BOARDS) if i != 2
]
"""Each flag on the M4, each core with one of those that failed."""
CHOSEN = EVERY if os.environ.get("AOT_FULL") == "1" else SAMPLE

needs_gcc = pytest.mark.skipif(not have_tool("arm-none-eabi-gcc"), reason="needs arm gcc")
needs_qemu = pytest.mark.skipif(not have_tool("qemu-system-arm"), reason="needs QEMU")


def flagged(name: str, *flags: str) -> Board:
    """A board with more flags in its board.toml."""
    board = load_board(name)
    return replace(board, flags=(*board.flags, *flags))


@pytest.mark.qemu
@needs_gcc
@needs_qemu
@pytest.mark.parametrize(("board", "flag", "network"), CHOSEN)
def test_a_network_is_exact(board: str, flag: str, network: str, tmp_path: Path) -> None:
    own = flagged(board, flag)
    level = (flag,) if flag.startswith("-O") else ()  # ours come behind those of the board
    project = prepare(build(MODELS / f"{network}.tflite", target=own.cpu), own, folder=tmp_path, extra_flags=level)
    with np.load(MODELS / f"{network}.golden.npz") as golden:
        found = run(project, [[golden["in0_0"]]])
        np.testing.assert_array_equal(found.outputs[0][0].ravel(), golden["out0_0"].ravel())
    image = inspect_image(project)
    assert image.problems == ()
    assert image.stack_bound is None or found.stack_bytes is None or found.stack_bytes <= image.stack_bound


@needs_gcc
def test_what_takes_a_register_is_found_out(tmp_path: Path) -> None:
    tool, board = find_tool("arm-none-eabi-gcc"), load_board("mps2-an386")
    assert register_flags(tool, board.flags) == []
    assert register_flags(tool, [*board.flags, "-fstack-protector-all"]) == []
    assert register_flags(tool, [*board.flags, "-fno-omit-frame-pointer", "-O0"]) == []
    for flag in ("-ffixed-r4", "-ffixed-r9", "-ffixed-r11", "-mtpcs-frame"):
        assert register_flags(tool, [*board.flags, flag]) == [NO_BLOCKS], flag
    (tmp_path / "options").write_text("-ffixed-r9\n", encoding="utf-8")
    assert register_flags(tool, [*board.flags, f"@{tmp_path / 'options'}"]) == [NO_BLOCKS]
    assert register_flags(tool, [*board.flags, "-ffixed-r9", "-DAOT_REGISTERS=0"]) == []


@needs_gcc
def test_the_smallest_cores_have_fewer_registers() -> None:
    tool, board = find_tool("arm-none-eabi-gcc"), load_board("mps2-an385-v6m")
    assert register_flags(tool, [*board.flags, "-fstack-protector-all"]) == []
    assert register_flags(tool, [*board.flags, "-ffixed-r9"]) == [NO_BLOCKS]


def test_projects_say_so_by_name() -> None:
    assert named_register_flags(["-mthumb", "-ffixed-r9"]) == [NO_BLOCKS]
    assert named_register_flags(["-mthumb", "-fPIC"]) == []


@pytest.mark.qemu
@needs_gcc
@needs_qemu
def test_a_guard_that_was_overwritten_is_a_fault(tmp_path: Path) -> None:
    """The runtime has what -fstack-protector calls; it ends the program where a function writes over its frame."""
    board = flagged("mps2-an386", "-fstack-protector-all")
    artifact = build(MODELS / "add.tflite", target=board.cpu, name="m")
    call = "int32_t m_run(const struct m_inputs *in, const struct m_outputs *out) {\n"
    spoil = f"{call}  volatile uint8_t frame[8];\n  for (volatile int i = 0; i < 24; ++i) frame[i] = 1u;\n"
    text = artifact.files["m.c"]
    assert call in text
    spoilt = replace(artifact, files={**artifact.files, "m.c": text.replace(call, spoil)})
    project = prepare(spoilt, board, folder=tmp_path, extra_flags=["-w"])
    with pytest.raises(VerificationError, match="fault"):
        run(project, [[np.zeros(t["shape"], t["dtype"]) for t in artifact.metadata["inputs"]]])
