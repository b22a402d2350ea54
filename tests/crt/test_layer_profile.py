"""Cycles of layers in a program of the user's: the text, its way into the report, the watchdog and sleep between layers."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from aot.micro.board import load_board
from aot.micro.build.project import Places, linker_script
from aot.report.measure.report import checksum, read_on_target
from tests.c_tools import INCLUDE
from tests.cli.helper import Cli
from tests.micro.projects import ROOT, need, new

KWS = ROOT / "tests" / "models" / "net_kws_dscnn.tflite"
CRT = ROOT / "crt" / "src"
FIRMWARE = Path(__file__).parent / "firmware" / "main.c"
WAYS = {"profile": 0, "no watchdog fed": 1, "sleep": 2}
WATCHDOG = 900_000
"""instructions; a run takes two million, its longest layer less than half of one"""

REGISTERS = r"""
#include <stdint.h>
#include <stdio.h>
static uint32_t demcr, control, lock, cycles, dead;
static volatile uint32_t *reg(uint32_t address) {
  static uint32_t other;
  switch (address) {
    case 0xE000EDFCu: return &demcr;
    case 0xE0001000u: return &control;
    case 0xE0001FB0u: return &lock;
    case 0xE0001004u:
      if ((demcr >> 24 & 1u) && (control & 1u) && lock == 0xC5ACCE55u && !dead) cycles += 10u;
      return &cycles;
    default: return &other;
  }
}
#define AOT_PROFILE_REGISTER(address) (*reg(address))
#include "layer_profile.c"
int main(void) {
  struct aot_layer_cycles layers[2];
  char line[AOT_PROFILE_LINE];
  cycles = 0xffffff00u; /* wraps soon */
  if (aot_profile_start(layers, 2) != 0) return 1;
  for (int run = 0; run < 3; run++) {
    aot_profile_run();
    cycles += 1000u;
    aot_profile_layer(0, 16);
    cycles += 50u;
    aot_profile_layer(1, 0xffffffffu);
    aot_profile_layer(7, 1);
    aot_profile_layer(-1, 1);
  }
  for (uint32_t i = 0; aot_profile_line(i, "a_name_of_more_than_thirty_one_characters", 4294967295u, line); i++) puts(line);
  dead = 1;
  return aot_profile_start(layers, 2) == -1 ? 0 : 2;
}
"""


def test_the_counter_of_the_core(tmp_path: Path) -> None:
    """DWT's registers in a stand-in that counts only when it was switched on and unlocked as a Cortex-M7 wants it."""
    need("gcc")
    (tmp_path / "a.c").write_text(REGISTERS)
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", "-g", INCLUDE, f"-I{CRT}"]
    subprocess.run(["gcc", *flags, "a.c", "-o", "a"], cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "a"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    name = "a_name_of_more_than_thirty_one_"
    assert lines[:3] == [
        f"aot-profile 1 {name} layers 2 runs 3 hz 4294967295", "aot-layer 0 3000 3 16", "aot-layer 1 150 3 4294967295",
    ]  # fmt: skip
    assert lines[3:] == [f"aot-profile-end {checksum(lines[:3])}"]


def firmware(way: str, folder: Path) -> Path:
    """A program around the model as `aot compile` writes it, with a test vector, for mps2-an386."""
    board = load_board("mps2-an386")
    new(folder / "p", KWS, "--name", "m", "--kind", "make", "--in-steps")
    for name in ("m_test.h", "m_test.c"):
        (folder / name).write_text((folder / "p" / "aot" / "models" / name).read_text())
    (folder / "board.ld").write_text(linker_script(board, Places("SSRAM1", "SSRAM1", "SSRAM23", "SSRAM23"), []))
    sources = [FIRMWARE, folder / "m_test.c", *sorted((folder / "m").glob("*.c"))]
    counter = () if way == "sleep" else ("counter.c", "systick.c")
    sources += [CRT / f for f in ("startup.c", "semihosting.c", "memory.c", *counter)]
    flags = [*board.flags, "-O2", "-std=c99", "-Wall", "-Wextra", "-Werror", "-ffreestanding", f"-DWAY={WAYS[way]}"]
    flags += [
        "-DAOT_HOOKS=1",
        f"-DTIMEOUT={WATCHDOG}u",
        "-DAOT_PROFILE_CLOCK=board_clock",
        "-DAOT_TICK_NUM=40u",
        "-DAOT_TICK_DEN=1u",
    ]
    flags += ["-fno-tree-loop-distribute-patterns", "-ffunction-sections", "-fdata-sections"]
    flags += [f"-I{folder / 'm' / 'include'}", f"-I{folder / 'm'}", f"-I{folder}", INCLUDE]
    link = ["-nostdlib", "-Wl,--gc-sections", f"-T{folder / 'board.ld'}", "-lgcc", "-o", str(folder / "p.elf")]
    done = subprocess.run(["arm-none-eabi-gcc", *flags, *map(str, sources), *link], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:3000]
    return folder / "p.elf"


def run(elf: Path) -> tuple[int, str]:
    """Exit code and output in QEMU."""
    options = ["-display", "none", "-monitor", "none", "-serial", "none", "-semihosting-config", "enable=on,target=native"]
    command = ["qemu-system-arm", "-M", "mps2-an386", "-icount", "shift=0,sleep=off", *options, "-kernel", str(elf)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.qemu
def test_from_firmware_to_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the program counts by a clock of its own is what our harness counts of each layer; both are instructions here."""
    need("arm-none-eabi-gcc", "qemu-system-arm")
    cli = Cli(capsys)
    assert cli("compile", KWS, "--name", "m", "--in-steps", "--profiler", "-o", tmp_path / "m", "-q").code == 0
    code, text = run(firmware("profile", tmp_path))
    assert code == 0, text
    assert text.count("exact\n") == 3, text
    (tmp_path / "log.txt").write_text("boot\r\n" + text)
    options = ("--name", "m", "--in-steps", "--from", tmp_path / "log.txt")
    done = cli("profile", KWS, *options, "-o", tmp_path / "report", "--json")
    assert done.code == 0, done.err
    (report,) = done.json["reports"]
    assert report["counted"] == {"by": "firmware", "runs": 3, "clock_hz": 25_000_000, "wait_states": None, "caches": None}
    assert report["totals"]["cycles"] == sum(x["cycles"] for x in report["layers"])
    for layer in report["layers"]:
        assert abs(layer["cycles"] - layer["instructions"]) < 0.01 * layer["instructions"] + 60, layer
    page = (tmp_path / "report" / "report.html").read_text()
    assert "in firmware, average of 3 runs at 25 MHz" in page
    assert json.loads((tmp_path / "report" / "report.json").read_text()) == done.json
    other = cli("profile", ROOT / "examples" / "digits" / "digits.tflite", "--name", "m", "--from", tmp_path / "log.txt")
    assert other.err.startswith("E5419 the profile has 12 layers, the model ")
    assert cli("profile", KWS, "--from", tmp_path / "log.txt").err.startswith("E5417")


@pytest.mark.qemu
@pytest.mark.parametrize("way", ["no watchdog fed", "sleep"])
def test_between_layers(way: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The hook feeds the board's watchdog, which ends a program that does not; a program in steps sleeps between them."""
    need("arm-none-eabi-gcc", "qemu-system-arm")
    done = Cli(capsys)("compile", KWS, "--name", "m", "--in-steps", "--profiler", "-o", tmp_path / "m", "-q")
    assert done.code == 0, done.err
    code, text = run(firmware(way, tmp_path))
    if way == "sleep":
        assert (code, text) == (0, "exact\n" * 3 + "slept\n")
    else:
        assert code == 99, text
        assert '"fault"' in text


META = {"name": "kws", "layers": [{"index": 0, "op": "CONV_2D", "name": "c", "output": {"shape": [1, 8], "dtype": "int16"}}]}
GOOD = ["aot-profile 1 kws layers 1 runs 2 hz 0", "aot-layer 0 31 2 16"]


def log(lines: list[str]) -> str:
    return "\n".join([*lines, f"aot-profile-end {checksum(lines)}"])


def test_a_log_as_loggers_write_it() -> None:
    text = "\n".join(f"\x1b[32m<inf> [00:00:01.2] {line}\x1b[0m\r\nother words" for line in log(GOOD).split("\n"))
    assert read_on_target(text, META).cycles == (16,)
    other = log(["aot-profile 1 ad layers 0 runs 1 hz 5"])
    newer = log([GOOD[0], "aot-layer 0 90 2 16"])
    assert read_on_target("\n".join([text, other, newer, GOOD[0].replace("kws", "ad")]), META).cycles == (45,)
