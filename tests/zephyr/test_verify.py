"""`aot verify --board zephyr:BOARD`, with the stand-in for a Zephyr tree; test_zephyr.py has the real one."""

from __future__ import annotations

import json
import os
import signal
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from aot.cli.__main__ import run
from aot.errors import ToolchainError
from aot.micro.board import load_board
from aot.micro.build.project import Places, linker_script
from aot.micro.run.zephyr import cpu_of, zephyr_version
from tests.micro.projects import DIGITS, ROOT, TWO_IO, need

STANDIN = ROOT / "tests" / "zephyr" / "standin"
CONFIG = """\
set(EXTRA_ZEPHYR_MODULES {root})
set(STANDIN_RUNTIME {root}/crt)
set(STANDIN_SCRIPT ${{CMAKE_CURRENT_LIST_DIR}}/board.ld)
set(Python3_EXECUTABLE {python})
include({standin}/ZephyrConfig.cmake)
file(WRITE ${{CMAKE_BINARY_DIR}}/zephyr/.config "CONFIG_CPU_CORTEX_M3=y\\n")
add_custom_target(run DEPENDS zephyr.elf USES_TERMINAL COMMAND qemu-system-arm -M mps2-an385 -display none -monitor none
  -serial none -icount shift=0,sleep=off -semihosting-config enable=on,target=native -kernel ${{CMAKE_BINARY_DIR}}/zephyr.elf)
"""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that find_package(Zephyr HINTS $ENV{ZEPHYR_BASE}) takes the stand-in from."""
    pytest.importorskip("kconfiglib", reason="kconfiglib is not installed")
    pytest.importorskip("yaml", reason="PyYAML is not installed")
    need("cmake", "ninja", "arm-none-eabi-gcc", "qemu-system-arm")
    (tmp_path / "VERSION").write_text("VERSION_MAJOR = 3\nVERSION_MINOR = 4\nPATCHLEVEL = 99\n")
    (tmp_path / "ZephyrConfig.cmake").write_text(CONFIG.format(root=ROOT, python=sys.executable, standin=STANDIN))
    place = Places("SSRAM1", "SSRAM1", "SSRAM23", "SSRAM23")
    (tmp_path / "board.ld").write_text(linker_script(load_board("mps2-an385"), place, []))
    monkeypatch.setenv("ZEPHYR_BASE", str(tmp_path))
    monkeypatch.delenv("ZEPHYR_MODULES", raising=False)
    return tmp_path


def test_without_a_tree(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    monkeypatch.delenv("ZEPHYR_BASE", raising=False)
    assert run(["verify", str(DIGITS), "--board", "zephyr:qemu_cortex_m3"]) == 6
    assert "E3020 ZEPHYR_BASE is not set" in capsys.readouterr().err
    monkeypatch.setenv("ZEPHYR_BASE", str(tmp_path))
    assert run(["verify", str(DIGITS), "--board", "zephyr:qemu_cortex_m3"]) == 6
    assert "is not a Zephyr tree" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("config", "cpu"),
    [
        ("CPU_CORTEX_M3", "cortex-m3"),
        ("CPU_CORTEX_M4", "cortex-m4+nofpu"),
        ("CPU_CORTEX_M4 FPU", "cortex-m4"),
        ("CPU_CORTEX_M33 ARMV8_M_MAINLINE", "cortex-m3"),
        ("CPU_CORTEX_M33 ARMV8_M_MAINLINE ARMV8_M_DSP", "cortex-m33+nofpu"),
        ("CPU_CORTEX_M55 ARMV8_M_MAINLINE ARMV8_M_DSP ARMV8_1_M_MVEI", "cortex-m33+nofpu"),
        ("CPU_CORTEX_M55 ARMV8_M_MAINLINE ARMV8_M_DSP ARMV8_1_M_MVEI FPU", "cortex-m55"),
        ("CPU_CORTEX_M23 ARMV8_M_BASELINE", "cortex-m0plus"),
    ],
)
def test_core_of_a_configuration(config: str, cpu: str) -> None:
    assert cpu_of("".join(f"CONFIG_{name}=y\n" for name in config.split())) == cpu


def test_other_cores() -> None:
    with pytest.raises(ToolchainError, match="does not support this board"):
        cpu_of("CONFIG_RISCV=y\n# CONFIG_CPU_CORTEX_M3 is not set\n")


def test_version(tmp_path: Path) -> None:
    (tmp_path / "VERSION").write_text("VERSION_MAJOR = 4\nVERSION_MINOR = 1\nPATCHLEVEL = 0\nVERSION_TWEAK = 0\nEXTRAVERSION =\n")
    assert zephyr_version(tmp_path) == (4, 1, 0)


@pytest.mark.qemu
@pytest.mark.parametrize("model", [DIGITS, TWO_IO], ids=lambda m: m.stem)
@pytest.mark.parametrize("options", [[], ["--io", "user", "--opt", "size"]], ids=["default", "user"])
def test_exact(tree: Path, capsys: pytest.CaptureFixture[str], model: Path, options: list[str]) -> None:
    assert run(["verify", str(model), "--board", "zephyr:any", "--json", "--random", "2", *options]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["exact"], found["sets_exact"], found["board"], found["instructions"]) == (True, 2, "zephyr:any", None)
    assert found["fingerprint"]["compiler"] == "Zephyr 3.4.99"
    validator = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    validator.validate(found, json.loads((ROOT / "aot/report/figures/schema/aot-verify-1.schema.json").read_text()))


@pytest.fixture
def stateful(tmp_path: Path) -> Path:
    """A model that keeps a window of what it heard."""
    with zipfile.ZipFile(ROOT / "tests" / "converter" / "over_time.zip") as archive:
        (tmp_path / "delay.tflite").write_bytes(archive.read("delay.int8.tflite"))
    return tmp_path / "delay.tflite"


@pytest.mark.qemu
@pytest.mark.parametrize("options", [[], ["--io", "user"]], ids=["default", "user"])
def test_a_state(tree: Path, capsys: pytest.CaptureFixture[str], stateful: Path, options: list[str]) -> None:
    """With --io user the state is the caller's: main.c has its bytes, and each run works on them."""
    assert run(["verify", str(stateful), "--board", "zephyr:any", "--json", "--random", "5", *options]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["exact"], found["sets_exact"]) == (True, 5)


WEST = """\
#!{python}
# `west flash`: starts the image of the board on a machine whose UART is a pseudo-terminal, which gets the port's name.
import os, re, shutil, subprocess, sys
elf = os.path.join(sys.argv[sys.argv.index("-d") + 1], "zephyr.elf")
wanted = {elf!r}
if wanted.startswith("--keep "):
    shutil.copy(elf, wanted.removeprefix("--keep "))
elif wanted:
    elf = wanted
command = ["qemu-system-arm", "-M", "mps2-an385", "-display", "none", "-monitor", "none", "-serial", "pty",
           "-semihosting-config", "enable=on,target=native", "-kernel", elf]
process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
name = re.search("/dev/[a-z]*/[0-9]+", process.stdout.readline()).group()
os.symlink(name, {port!r})
open({pid!r}, "w").write(str(process.pid))
"""


@pytest.fixture
def board(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Path]]:
    """A board that `west flash` starts in the emulator, with `elf` in place of what was built; gives its serial port."""
    pid = tmp_path / "pid"

    def made(elf: str = "") -> Path:
        port = tmp_path / "ttyBoard"
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        text = WEST.format(python=sys.executable, elf=elf, port=str(port), pid=str(pid))
        (folder / "west").write_text(text)
        (folder / "west").chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        return port

    yield made
    if pid.is_file():
        os.kill(int(pid.read_text()), signal.SIGTERM)


@pytest.mark.qemu
@pytest.mark.parametrize("model", [DIGITS, TWO_IO], ids=lambda m: m.stem)
def test_over_a_serial_port(board: Callable[[str], Path], capsys: pytest.CaptureFixture[str], model: Path) -> None:
    """Built, flashed by a west of the test's own, and spoken to over QEMU's pseudo-terminal: the verdict of any other board."""
    port = board("")
    assert run(["verify", str(model), "--board", "zephyr:any", "--serial", str(port), "--json", "--random", "3"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["exact"], found["sets_exact"], found["board"]) == (True, 3, "zephyr:any")


@pytest.mark.qemu
def test_a_state_over_a_serial_port(board: Callable[[str], Path], capsys: pytest.CaptureFixture[str], stateful: Path) -> None:
    words = ["--serial", str(board("")), "--io", "user", "--random", "5"]
    assert run(["verify", str(stateful), "--board", "zephyr:any", "--json", *words]) == 0
    assert json.loads(capsys.readouterr().out)["sets_exact"] == 5


@pytest.mark.qemu
def test_an_image_that_was_not_flashed(board: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The board still runs what was built for another model."""
    kept = tmp_path / "kept.elf"
    port = board(f"--keep {kept}")
    assert run(["verify", str(TWO_IO), "--board", "zephyr:any", "--serial", str(port), "--random", "1"]) == 0
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGTERM)
    port.unlink()
    board(str(kept))
    assert run(["verify", str(DIGITS), "--board", "zephyr:any", "--serial", str(port), "--random", "1"]) == 6
    assert "E5413" in (text := capsys.readouterr().err)
    assert "it was not flashed" in text


def test_serial_is_for_zephyr(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", str(DIGITS), "--board", "host", "--serial", "/dev/ttyACM0"]) == 2
    assert "E5017 --serial works with --board zephyr:BOARD" in capsys.readouterr().err


def test_flashing_needs_west(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "VERSION").write_text("VERSION_MAJOR = 3\n")
    monkeypatch.setenv("ZEPHYR_BASE", str(tmp_path))
    monkeypatch.setattr("shutil.which", lambda name: None if name == "west" else f"/bin/{name}")
    assert run(["verify", str(DIGITS), "--board", "zephyr:any", "--serial", "/dev/ttyACM0"]) == 6
    assert "E3020 --serial flashes the board with west" in capsys.readouterr().err


@pytest.mark.qemu
def test_a_wrong_byte_is_found(tree: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    golden = dict(np.load(TWO_IO.with_suffix(".golden.npz")))
    golden["out0_0"] = golden["out0_0"].copy()
    golden["out0_0"].reshape(-1)[3] ^= 1
    np.savez(tmp_path / "wrong.npz", **golden)
    assert run(["verify", str(TWO_IO), "--board", "zephyr:any", "--inputs", str(tmp_path / "wrong.npz")]) == 5
    assert "output 0 of set 0: element 3 of" in capsys.readouterr().err


@pytest.mark.qemu
def test_a_board_without_room(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Said after the configuration, before anything is built."""
    dts = "/ { chosen { zephyr,flash = &f; zephyr,sram = &s; }; f: f@0 { reg = <0 0x1000>; }; s: s@0 { reg = <0 0x4000>; }; };"
    with (tree / "ZephyrConfig.cmake").open("a") as file:
        file.write(f'file(WRITE ${{CMAKE_BINARY_DIR}}/zephyr/zephyr.dts "{dts}")\n')
        file.write("target_compile_options(app PRIVATE -fno-such-option)\n")
    assert run(["verify", str(DIGITS), "--board", "zephyr:small", "--random", "1"]) == 4
    text = capsys.readouterr().err
    assert "E2010 zephyr:small has 16,384 bytes of RAM (zephyr,sram)" in text
    assert "E2011 zephyr:small has 4,096 bytes of flash (zephyr,flash)" in text


@pytest.mark.qemu
def test_what_does_not_build(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "ZephyrConfig.cmake").write_text('message(FATAL_ERROR "No board named nothing")\n')
    assert run(["verify", str(DIGITS), "--board", "zephyr:nothing"]) == 6
    assert "E3021" in (text := capsys.readouterr().err)
    assert "No board named nothing" in text
