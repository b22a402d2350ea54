"""Every kind of project built as its tool builds it, at an optimisation level of choice, and run in QEMU where it can be.

A builder takes the project's folder and the models' names, and gives the names of those whose outputs were all the reference's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from aot.micro.board import Board, data_folder, load_board
from aot.micro.build.project import Places, linker_script
from aot.micro.run.qemu import execute
from tests.micro.projects import ROOT, sh

STANDIN = ROOT / "tests" / "micro" / "standin"
CRT = data_folder("crt")
_PASS = re.compile(r"PASS (\w+): [^\n]*\b0 outputs differ")


def passed(text: str) -> set[str]:
    """The models that passed; a failure fails here."""
    assert "FAIL" not in text, text
    return {m.group(1) for m in _PASS.finditer(text)}


def script(board: Board, folder: Path) -> Path:
    """A linker script for a program of a stand-in's."""
    code, data = board.code, board.data
    (folder / "board.ld").write_text(linker_script(board, Places(code, code, data, data), []))
    return folder / "board.ld"


def pico(project: Path, names: Sequence[str], board: str = "mps2-an385-v6m", *, level: str = "") -> set[str]:
    """With the stand-in for the SDK, on an emulated board with the core of RP2040 or RP2350."""
    del names
    place, folder = load_board(board), project.parent / "o"
    folder.mkdir(exist_ok=True)
    settings = f"-DPICO_SDK_PATH={STANDIN}/pico -DSTANDIN_CRT={CRT} -DSTANDIN_SCRIPT={script(place, folder)}"
    settings += f" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG={level}" if level else ""
    sh(f"cmake -S . -B build {settings} && cmake --build build -j2", cwd=project)
    elf = next((project / "build").glob("*.elf"))
    assert elf.with_suffix(".hex").is_file()
    return passed(execute(place, elf, cwd=folder, timeout=60).output)


def rust(project: Path, names: Sequence[str], *, level: str = "") -> set[str]:
    """By Cargo on this machine: rustc's library for Cortex-M is in no package of Debian's."""
    del names
    flags = f"CFLAGS='{level} -Wall -Wextra -Werror' RUSTFLAGS=-Dwarnings"
    return passed(sh(f"{flags} cargo run --offline -q --example run", cwd=project))
