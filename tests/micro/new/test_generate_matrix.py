"""Every kind of project with one small model, one of the size of a keyword spotter, and both: built with -Werror, run in QEMU.

A cell passes when all outputs of all its models are the reference's, bit by bit.  What other tools would build (Zephyr, Arduino,
PlatformIO) is built here as they do, with stand-ins for their frameworks.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from aot.cli import common
from aot.micro.board import data_folder, load_board
from aot.micro.build.project import Places, linker_script
from aot.micro.run.qemu import execute
from tests.micro.builders import cmake, make, passed
from tests.micro.mlperf_runner import Runner
from tests.micro.projects import DIGITS, ROOT, arduino_header, need, need_arm_cxx, new, sh

_OFFICIAL = ROOT.parent / "shared" / "models" / "nets" / "mlperf_kws_dscnn_int8.tflite"
KWS = _OFFICIAL if _OFFICIAL.is_file() else ROOT / "tests" / "models" / "net_kws_dscnn.tflite"
"""The official keyword spotter where it is at hand, else a net of its shape."""
BOTH = {"kws": KWS, "digits": DIGITS}
FED = {"fed": ROOT / "tests" / "models" / "depthwise_multiplier8.tflite"}
MODELS = {"kws": {"kws": KWS}, "digits": {"digits": DIGITS}, "two models": BOTH, "one workspace": BOTH, "fed rows": FED}
BOARD = "mps2-an386"


def zephyr(project: Path, names: list[str]) -> set[str]:
    """With the stand-in for find_package(Zephyr), on a Cortex-M3."""
    from tests.zephyr import test_zephyr as glue

    done = glue.build(project, ROOT, project.parent / "o")
    assert done.returncode == 0, done.stdout + done.stderr
    return passed(glue.execute(project.parent / "o"))


def mlperf_tiny(project: Path, names: list[str]) -> set[str]:
    sh("make -s -j2 WERROR=-Werror", cwd=project)
    with Runner(project) as runner:
        return {n for n in names for _ in runner.command(f"model {n}") if passed(runner.command("verify")[0]) == {n}}


def framework(project: Path, names: list[str], board: str = BOARD, *, level: str = "") -> set[str]:
    """As the Arduino builder does: the library with its own folder for headers only, the sketch with a main around it."""
    del names, board
    program = next(p for p in (project / "src" / "main.cpp", *sorted(project.glob("examples/*/*.ino"))) if p.is_file())
    library = next((p for p in project.glob("lib/*/src")), project / "src")
    place = load_board(BOARD)
    folder = project.parent / "o"
    folder.mkdir()
    (folder / "Arduino.h").write_text(arduino_header("semihosting"))
    regions = Places(*["SSRAM1"] * 2, *["SSRAM23"] * 2)
    (folder / "board.ld").write_text(linker_script(place, regions, []))
    main = "int main() { setup(); loop(); }\n"
    (folder / "sketch.cpp").write_text(f"#include <Arduino.h>\n{program.read_text()}\n{main}")
    crt = data_folder("crt")
    flags = f"{' '.join(place.flags)} {level or '-Os'} -ffunction-sections -fdata-sections -Wall -Wextra -Werror"
    runtime = " ".join(f"{crt}/src/{name}.c" for name in ("startup", "semihosting", "systick", "memory"))
    defines = "-DAOT_TICK_NUM=40u -DAOT_TICK_DEN=1u -fno-tree-loop-distribute-patterns"
    sh(
        f"arm-none-eabi-gcc {flags} -I{library} -c {library}/*.c\n"
        f"arm-none-eabi-gcc {flags} {defines} -I{crt}/include -c {runtime}\n"
        f"arm-none-eabi-g++ {flags} -std=gnu++17 -fno-exceptions -fno-rtti -DARDUINO=10819 -I. -I{library} -I{crt}/include "
        "-c sketch.cpp\n"
        f"arm-none-eabi-gcc {flags} -nostdlib -Wl,--gc-sections -Tboard.ld *.o -lgcc -o firmware.elf",
        cwd=folder,
    )
    return passed(execute(place, folder / "firmware.elf", cwd=folder, timeout=600).output)


KINDS: dict[str, tuple[Callable[[Path, list[str]], set[str]], str]] = {
    "make": (make, BOARD),
    "cmake": (cmake, BOARD),
    "zephyr": (zephyr, "mps2-an385"),
    "arduino": (framework, BOARD),
    "platformio": (framework, BOARD),
    "mlperf-tiny": (mlperf_tiny, BOARD),
}


@pytest.mark.slow
@pytest.mark.parametrize("models", MODELS)
@pytest.mark.parametrize("kind", KINDS)
def test_cell(tmp_path: Path, kind: str, models: str) -> None:
    need("make", "cmake", "arm-none-eabi-gcc", "arm-none-eabi-g++", "qemu-system-arm")
    if kind in ("arduino", "platformio"):
        need_arm_cxx()
    wanted = MODELS[models]
    build, board = KINDS[kind]
    names = [word for name in wanted for word in ("--name", name)]
    names += ["--share-workspace"] * (models == "one workspace")
    names += ["--feed-rows"] * (models == "fed rows")
    if models == "fed rows" and kind == "mlperf-tiny":  # its runner sends whole inputs
        new(tmp_path / "p", *wanted.values(), *names, "--kind", kind, "--board", board, code=2)
        return
    new(tmp_path / "p", *wanted.values(), *names, "--kind", kind, "--board", board)
    assert build(tmp_path / "p", list(wanted)) == set(wanted)


@pytest.mark.parametrize("kind", KINDS)
def test_generating_is_one_compilation(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each model; no tool is started."""
    compiled: list[str] = []
    compile_model = common.compile_model
    monkeypatch.setattr(common, "compile_model", lambda wanted: compiled.append(wanted.name) or compile_model(wanted))
    monkeypatch.setattr(subprocess, "Popen", None)
    new(tmp_path / "p", DIGITS, "--kind", kind, "--board", KINDS[kind][1])
    assert compiled == ["digits"]


@pytest.mark.slow
def test_readme_of_kws_word_by_word(tmp_path: Path) -> None:
    """All commands of the README, in their order, in a folder that holds the project and nothing else."""
    need("make", "arm-none-eabi-gcc", "qemu-system-arm")
    new(tmp_path / "empty" / "kws", KWS, "--name", "kws")
    readme = (tmp_path / "empty" / "kws" / "README.md").read_text()
    blocks = re.findall(r"```sh\n(.*?)```", readme, re.DOTALL)
    inline = re.findall(r"`(make[^`]*)`", readme)
    assert len(blocks) == 1
    assert inline.pop(0) == "make CONSOLE=uart BUILD=build/uart"  # once its user has written put() of src/console.c
    assert inline.pop(0) == "make PROFILE=1 BUILD=build/profile run"
    assert inline == ["make WERROR=-Werror", "make hex bin", "make DEBUG=1 BUILD=build/debug"]
    assert passed(sh(blocks[0], cwd=tmp_path / "empty" / "kws")) == {"kws"}
    sh("make clean && " + " && ".join(inline), cwd=tmp_path / "empty" / "kws")
    code = re.search(r"```c\n(.*?)```", readme, re.DOTALL)
    assert code is not None
    include, _, rest = code.group(1).partition("\n")
    program = f"{include}\nint main(void) {{\n{rest}\nreturn (int)status;\n}}\n"
    (tmp_path / "empty" / "kws" / "src" / "main.c").write_text(program)
    sh("make && make run", cwd=tmp_path / "empty" / "kws")
