"""What this package adds to aot; `register` is its entry point of the group `aot.plugins`."""

from __future__ import annotations

from pathlib import Path


def register() -> None:
    """Called once, when aot first compiles, checks or lists something."""
    from aot.driver.oracles import register_oracle
    from aot.micro.board import register_boards
    from aot.target.cpu import Core, register_core
    from aot_mine import codegen, kernel, mirror, mirror_pass  # noqa: F401 - importing registers
    from aot_mine.oracle import engine

    register_core(
        Core("mine-m4", frozenset({"mull", "thumb2", "unaligned", "div", "dsp"}), ("-mcpu=cortex-m4", "-mthumb"), "our own core")
    )
    register_boards(Path(__file__).parent / "boards")
    register_oracle("mine", engine)
