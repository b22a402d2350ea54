"""Boards with little RAM, for tests."""

from __future__ import annotations

from pathlib import Path

STACK = 8192
HARNESS = 256
LAYER = 8
"""RAM of the harness, and what it takes more for each layer."""

BOARD = """
name = "small"
title = "MPS2 with little RAM"
kind = "qemu"
cpu = "cortex-m4"
flags = ["-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"]
qemu = { machine = "mps2-an386", cpu = "cortex-m4" }
systick = { instructions_per_tick = [40, 1] }
memory = [
  { name = "FLASH", access = "rx", origin = 0x00000000, size = 0x00400000 },
  { name = "RAM", access = "rw", origin = 0x20000000, size = %d },
]
placement = { code = "FLASH", constants = ["FLASH"], data = "RAM", workspace = ["RAM"] }
run = { stack = %d, timeout_seconds = 120 }
"""


def small_board(folder: Path, ram: int, *, layers: int = 1) -> Path:
    """A board with so many bytes of RAM beside the stack and the harness of a model of so many layers."""
    small = folder / "small"
    small.mkdir()
    (small / "board.toml").write_text(BOARD % (STACK + HARNESS + LAYER * layers + ram, STACK))
    return small
