"""Every kind of project built as its tool builds it, at an optimisation level of choice, and run in QEMU where it can be.

A builder takes the project's folder and the models' names, and gives the names of those whose outputs were all the reference's.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aot.micro.board import Board, data_folder, load_board
from aot.micro.build.project import Places, linker_script
from aot.micro.new.bare import SERIAL, qemu_arguments
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


def make(project: Path, names: Sequence[str], board: str = "mps2-an386", *, level: str = "") -> set[str]:
    """By GNU make; a level takes the place of its own."""
    del names, board
    variables = f"WERROR=-Werror LEVEL={level}" if level else "WERROR=-Werror"
    sh(f"make -s -j2 {variables} hex bin", cwd=project)
    return passed(sh(f"make -s {variables} run", cwd=project))


def cmake(project: Path, names: Sequence[str], board: str = "mps2-an386", *, level: str = "") -> set[str]:
    """By CMake; a level is that of the configuration Debug."""
    del names, board
    settings = f"-DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG={level}" if level else ""
    sh(f"cmake -B build -DCMAKE_C_FLAGS=-Werror {settings} && cmake --build build -j2", cwd=project)
    return passed(sh("test -s build/firmware.hex && test -s build/firmware.bin && cmake --build build -t run", cwd=project))


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
    return passed(execute(place, elf, cwd=folder, timeout=600).output)


def rust(project: Path, names: Sequence[str], board: str = "", *, level: str = "") -> set[str]:
    """By Cargo on this machine; `tests/micro/rust_firmware.py` has the way to a Cortex-M."""
    del names, board
    flags = f"CFLAGS='{level} -Wall -Wextra -Werror' RUSTFLAGS=-Dwarnings"
    return passed(sh(f"{flags} cargo run --offline -q --example run", cwd=project))


_CBUILD_LEVELS = {"debug": "-Og", "none": "-O0", "balanced": "-O2", "size": "-Os", "speed": "-O3"}
"""`optimize:` of a csolution -> what cbuild gives GCC."""


def cmsis(project: Path, names: Sequence[str], board: str = "mps2-an386", *, level: str = "") -> set[str]:
    """What cbuild would compile of the solution, with GCC's flags for it, our start-up code and printf; printed by the UART.

    A level takes the place of the one of the build type Debug.
    """
    import yaml

    del names
    place, folder = load_board(board), project.parent / "o"
    folder.mkdir(exist_ok=True)
    found = [next(project.glob(f"*.{kind}.yml")) for kind in ("csolution", "cproject")]
    solution, plan = (yaml.load(path.read_text(), yaml.BaseLoader) for path in found)  # scalars as text: `on` is a word
    build = "Debug" if level else "Release"
    default = next(b["optimize"] for b in solution["solution"]["build-types"] if b["type"] == build)
    assert {"elf", "hex", "bin"} <= set(plan["project"]["output"]["type"])
    flags = [*place.flags, f"-std={solution['solution']['language-C']}"]
    flags += next(m["C"] for m in solution["solution"]["misc"] if m["for-compiler"] == "GCC")
    script(place, folder)
    commands = []
    for source, optimize, includes in _cmsis_files(project, plan["project"], build):
        name = level if level and not optimize else _CBUILD_LEVELS[optimize or default]
        commands.append(
            f"{shlex.join([*flags, name, *(f'-I{i}' for i in includes)])} -Wall -Wextra -Werror -c {shlex.quote(str(source))}"
        )
    runtime = " ".join(f"{CRT}/src/{n}.c" for n in ("startup", "semihosting", "memory", "systick"))
    standin = f"-I{CRT}/include -DSTANDIN_PUTCHAR -DAOT_TICK_NUM=40u -DAOT_TICK_DEN=1u -fno-builtin-printf -Os"
    standin += " -fno-tree-loop-distribute-patterns"
    commands.append(f"{shlex.join(place.flags)} {standin} -c {STANDIN}/printf.c {runtime}")
    commands.append(f"{shlex.join(place.flags)} -nostdlib -Wl,--gc-sections -Tboard.ld *.o -lgcc -o firmware.elf")
    sh("rm -f *.o\n" + "\n".join(f"arm-none-eabi-gcc {c}" for c in commands), cwd=folder)
    run = [*qemu_arguments(place, SERIAL), str(folder / "firmware.elf")]
    done = subprocess.run(["qemu-system-arm", *run], capture_output=True, text=True, check=False, timeout=600)
    return passed(done.stdout + done.stderr)


def _cmsis_files(project: Path, plan: Mapping[str, Any], build: str) -> list[tuple[Path, str, list[Path]]]:
    """Each source of a build type with its `optimize:` ("" for that of the build type) and include folders."""
    import yaml

    layers = [project / row["layer"] for row in plan["layers"]]
    parts = [(project, plan), *((p.parent, yaml.load(p.read_text(), yaml.BaseLoader)["layer"]) for p in layers)]
    includes = [folder / i for folder, part in parts for i in part.get("add-path", [])]
    rows = []
    for folder, part in parts:
        for group in part["groups"]:
            wanted = group.get("for-context", f".{build}") == f".{build}" and group.get("not-for-context") != f".{build}"
            rows += [(folder / f["file"], group.get("optimize", ""), includes) for f in group["files"] if wanted]
    return rows
