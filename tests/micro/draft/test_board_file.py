"""Drafts of board files: what they say, that they load, and `aot boards new`."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from aot.errors import UsageError
from aot.micro.board import load_board, parse_board
from aot.micro.draft import Chip, draft, read_devicetree, read_linker_script
from aot.target.cpu import CORES
from tests.cli.helper import Cli
from tests.micro.draft.test_devicetree import ZEPHYR
from tests.micro.draft.test_linker_script import CUBE
from tests.models.golden import FOLDER as MODELS


@pytest.mark.parametrize("cpu", [c.name for c in CORES.values() if c.gcc_flags])
def test_a_draft_of_every_core_loads(cpu: str) -> None:
    board = parse_board(draft(read_linker_script(CUBE), name="g4", source="g4.ld", cpu=cpu), "g4/board.toml")
    assert (board.cpu, board.code, board.data, board.workspace) == (cpu, "FLASH", "RAM", ("RAM", "CCMSRAM"))
    assert board.stack == 2048
    assert board.gdb is not None
    assert board.gdb.counter == ("systick" if cpu.startswith("cortex-m0") else "dwt")
    emulated = {"cortex-m3": "netduino2", "cortex-m4": "netduinoplus2"}
    assert (board.like.name if board.like else None) == emulated.get(cpu)


def test_what_a_devicetree_chooses() -> None:
    board = parse_board(draft(read_devicetree(ZEPHYR), name="nano", source="zephyr.dts"), "nano/board.toml")
    assert (board.code, board.region(board.code).origin, board.data) == ("FLASH0", 0x10000, "SRAM0")
    assert board.like is not None


def test_what_is_missing() -> None:
    found = read_linker_script(CUBE)
    with pytest.raises(UsageError, match=r"E5386.*give --cpu"):
        draft(found, name="b", source="g4.ld")
    with pytest.raises(UsageError, match=r"E5386.*'z80' is not one of"):
        draft(found, name="b", source="g4.ld", cpu="z80")
    for access, what in (("rx", "data"), ("rw", "code")):
        rest = Chip(tuple(m for m in found.memory if m.access == access))
        with pytest.raises(UsageError, match=f"E5385.*no memory for {what}"):
            draft(rest, name="b", source="g4.ld", cpu="cortex-m4")


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run = Cli(capsys)
    monkeypatch.chdir(tmp_path)
    Path("part.ld").write_text(CUBE, encoding="utf-8")
    made = run("boards", "new", "--from", "part.ld", "--cpu", "cortex-m4", "-o", "boards/g431")
    assert made.code == 0
    assert "--board qemu:boards/g431:" in made.out
    board = load_board("boards/g431")
    assert board.kind == "gdb"
    there = load_board("qemu:boards/g431")
    assert (there.kind, there.machine, there.name, there.gdb) == ("qemu", "netduinoplus2", "g431-qemu", None)
    assert "E5004" in run("boards", "new", "--from", "part.ld", "--cpu", "cortex-m4", "-o", "boards/g431").err
    assert "E5017" in run("boards", "--cpu", "cortex-m4").err
    assert "E5017" in run("boards", "mine", "--from", "part.ld").err
    Path("empty.dts").write_text("/ { };", encoding="utf-8")
    assert "E5385" in run("boards", "new", "--from", "empty.dts").err


def test_search(capsys: pytest.CaptureFixture[str]) -> None:
    run = Cli(capsys)
    found = run("boards", "--search", "NUCLEO", "--json").json["boards"]
    assert [b["name"] for b in found] == ["nucleo-f446re", "nucleo-h743zi2", "nucleo-l4r5zi", "nucleo-u575zi-q"]
    assert found[0]["emulated_by"] == "netduinoplus2"
    assert "E5020" in run("boards", "--search", "z80").err


@pytest.mark.qemu
def test_a_project_for_the_emulated_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It keeps the board file, and its regenerate.sh names it from within the project."""
    monkeypatch.chdir(tmp_path)
    run = Cli(capsys)
    Path("part.ld").write_text(CUBE, encoding="utf-8")
    assert run("boards", "new", "--from", "part.ld", "--cpu", "cortex-m4", "-o", "boards/g431").code == 0
    model = MODELS / "dense.tflite"
    assert run("new", "real", model, "--board", "boards/g431").code == 0
    subprocess.run(["make", "-s", "-C", "real", "hex"], capture_output=True, timeout=600, check=True)
    done = run("new", "p", model, "--board", "qemu:boards/g431")
    assert done.code == 0, done.err
    assert "--board qemu:./board/g431" in Path("p/regenerate.sh").read_text(encoding="utf-8")
    assert Path("p/board/g431/board.toml").read_bytes() == Path("boards/g431/board.toml").read_bytes()
    made = subprocess.run(["make", "-s", "-C", "p", "run"], capture_output=True, text=True, timeout=600, check=True)
    assert re.search(r"PASS dense: \d+ instructions, 0 outputs differ", made.stdout)
