"""make and cmake projects: consoles, images, presets, a package of CMake, and boards that only a probe reaches."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from aot.cli.__main__ import run
from aot.micro.board import load_board
from aot.micro.new.bare import counter_source, flash_command
from tests.micro.builders import cmake, make, passed
from tests.micro.new.test_levels import models_of
from tests.micro.projects import DIGITS, ROOT, need, new, sh, snapshot


def test_flash_commands() -> None:
    found = {b: flash_command(load_board(b)) for b in ("nucleo-f446re", "nano33ble", "rpi-pico", "mps2-an386", "host")}
    program = ["-c", "program FILE verify reset exit"]
    assert found == {
        "nucleo-f446re": ["openocd", "-f", "board/st_nucleo_f4.cfg", *program],
        "nano33ble": ["pyocd", "load", "--target", "nrf52840", "FILE"],
        "rpi-pico": ["openocd", "-f", "interface/cmsis-dap.cfg", "-f", "target/rp2040.cfg", *program],
        "mps2-an386": [], "host": [],
    }  # fmt: skip


def test_counters() -> None:
    found = {b: counter_source(load_board(b)) for b in ("nucleo-f446re", "rpi-pico", "mps2-an386")}
    assert found == {"nucleo-f446re": "dwt.c", "rpi-pico": "systick.c", "mps2-an386": "systick.c"}


@pytest.mark.qemu
@pytest.mark.parametrize("kind", ["make", "cmake"])
def test_text_through_the_uart(tmp_path: Path, kind: str) -> None:
    need("make", "cmake", "arm-none-eabi-gcc", "qemu-system-arm")
    new(tmp_path / "p", DIGITS, "--kind", kind)
    commands = {
        "make": "make -s WERROR=-Werror CONSOLE=uart && make -s CONSOLE=uart run",
        "cmake": "cmake -B build -DCMAKE_C_FLAGS=-Werror -DCONSOLE=uart && cmake --build build -t run",
    }
    assert passed(sh(commands[kind], cwd=tmp_path / "p")) == {"digits"}
    assert "AOT_RUN := $(AOT_RUN_UART)" in snapshot(tmp_path / "p").get("Makefile", b"AOT_RUN := $(AOT_RUN_UART)").decode()


@pytest.mark.qemu
@pytest.mark.parametrize("kind", ["make", "cmake"])
def test_cycles_of_each_layer(tmp_path: Path, kind: str) -> None:
    """As its README says: what PROFILE prints, `aot profile` reads, for each of two models; one has a state."""
    need("make", "cmake", "arm-none-eabi-gcc", "qemu-system-arm")
    folder = tmp_path / "p"
    models = models_of("streaming with state", tmp_path) | {"digits": DIGITS}
    new(folder, *models.values(), *(word for name in models for word in ("--name", name)), "--kind", kind)
    readme = (folder / "README.md").read_text()
    (build,) = re.findall(r"^Time of each layer: `([^`]*)`", readme, re.MULTILINE)
    strict = build.replace("make ", "make -s WERROR=-Werror ", 1) if kind == "make" else f"export CFLAGS=-Werror; {build}"
    text = sh(strict, cwd=folder)
    assert passed(text) == set(models)
    (folder / "log.txt").write_text(text)
    commands = re.findall(r"^    aot (profile .*)$", readme, re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        words = [str(folder / w) if w.startswith(("models/", "log.txt", "report/")) else w for w in shlex.split(command)]
        assert run([*words, "-q"]) == 0
        (report,) = json.loads((Path(words[words.index("-o") + 1]) / "report.json").read_text())["reports"]
        assert report["counted"]["by"] == "firmware"
        assert all(layer["cycles"] > 0 for layer in report["layers"])


@pytest.mark.qemu
def test_presets(tmp_path: Path) -> None:
    need("cmake", "arm-none-eabi-gcc", "qemu-system-arm")
    new(tmp_path / "p", DIGITS, "--kind", "cmake")
    sh("cmake --preset debug -DCMAKE_EXPORT_COMPILE_COMMANDS=ON && cmake --build --preset debug", cwd=tmp_path / "p")
    commands = (tmp_path / "p" / "build" / "debug" / "compile_commands.json").read_text()
    assert "-Og -g3" in commands
    assert not any(f" {level} " in commands for level in ("-Os", "-O2"))
    assert passed(sh("cmake --build build/debug -t run", cwd=tmp_path / "p")) == {"digits"}


@pytest.mark.slow
@pytest.mark.parametrize("board", ["host", "mps2-an386"])
def test_a_package_of_cmake(tmp_path: Path, board: str) -> None:
    """Another project finds the installed models, and takes their header and the flags of the core along."""
    need("cmake", "gcc", "arm-none-eabi-gcc")
    new(tmp_path / "p", DIGITS, "--kind", "cmake", "--board", board)
    sh("cmake -B build && cmake --build build -j2 && cmake --install build --prefix ../i", cwd=tmp_path / "p")
    user = tmp_path / "user"
    user.mkdir()
    (user / "main.c").write_text('#include "digits.h"\nint main(void) { return digits_run(0, 0) == 0; }\n')
    (user / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\nproject(user C)\nfind_package(p REQUIRED)\nadd_executable(user main.c)\n"
        "target_link_libraries(user p::aot_models)\n"
    )
    tools = (
        ""
        if board == "host"
        else f"-DCMAKE_TOOLCHAIN_FILE={tmp_path}/p/aot/toolchain.cmake -DCMAKE_EXE_LINKER_FLAGS='-mcpu=cortex-m4 -mthumb "
    )
    tools += "" if board == "host" else "-mfloat-abi=hard -mfpu=fpv4-sp-d16 --specs=nosys.specs'"
    sh(f"cmake -B build -Dp_DIR={tmp_path}/i/lib/cmake/p {tools} && cmake --build build", cwd=user)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["make", "cmake"])
@pytest.mark.parametrize("board", ["nucleo-f446re", "rpi-pico", "nucleo-h743zi2"])
def test_boards_behind_a_probe(tmp_path: Path, kind: str, board: str) -> None:
    """Built; `flash` calls the tool of board.toml with the image (a stand-in here); a UART asks to be written."""
    need("make", "cmake", "arm-none-eabi-gcc")
    new(tmp_path / "p", DIGITS, "--kind", kind, "--board", board)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "openocd").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "bin" / "openocd").chmod(0o755)
    build = (
        "make -s WERROR=-Werror hex && make flash"
        if kind == "make"
        else "cmake -B build && cmake --build build && cmake --build build -t flash"
    )
    text = sh(f'PATH="{tmp_path}/bin:$PATH"\n{build}', cwd=tmp_path / "p")
    assert "firmware.hex verify reset exit" in text
    assert "#error" in (tmp_path / "p" / "src" / "console.c").read_text()


@pytest.mark.slow
def test_levels_reach_the_compiler(tmp_path: Path) -> None:
    need("make", "cmake", "arm-none-eabi-gcc", "qemu-system-arm")
    model = ROOT / "tests" / "models" / "dense.tflite"
    for kind, build in (("make", make), ("cmake", cmake)):
        new(tmp_path / kind, model, "--kind", kind)
        assert build(tmp_path / kind, ["dense"], level="-O0") == {"dense"}
