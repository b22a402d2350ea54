"""Projects for Raspberry Pi Pico boards: with a stand-in for the SDK, run in QEMU, and with the SDK where it is at hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.micro.builders import pico
from tests.micro.projects import DIGITS, TWO_IO, need, new, sh, snapshot


def test_boards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new(tmp_path / "p", DIGITS, "--kind", "pico")
    lists = (tmp_path / "p" / "CMakeLists.txt").read_text()
    assert "set(PICO_BOARD pico CACHE" in lists
    assert b"--board rpi-pico " in snapshot(tmp_path / "p")["regenerate.sh"]
    new(tmp_path / "q", DIGITS, "--kind", "pico", "--board", "mps2-an386", code=2)
    assert "E5400" in capsys.readouterr().err


@pytest.mark.qemu
@pytest.mark.parametrize("board", ["mps2-an385-v6m", "mps2-an505"])
def test_glue(tmp_path: Path, board: str) -> None:
    need("cmake", "arm-none-eabi-gcc", "qemu-system-arm")
    new(tmp_path / "p", DIGITS, TWO_IO, "--name", "digits", "--name", "pair", "--kind", "pico", "--board", board)
    assert pico(tmp_path / "p", ["digits", "pair"], board) == {"digits", "pair"}


@pytest.mark.slow
@pytest.mark.parametrize("board", ["rpi-pico", "rpi-pico2"])
def test_the_sdk_itself(tmp_path: Path, board: str) -> None:
    """AOT_PICO_SDK: a folder of the SDK; picotool, which would make the .uf2, is not asked for."""
    if "AOT_PICO_SDK" not in os.environ:
        pytest.skip("AOT_PICO_SDK does not name a folder of the Pico SDK")
    need("cmake", "arm-none-eabi-g++", "python3")
    new(tmp_path / "p", DIGITS, "--kind", "pico", "--board", board)
    sh(f"cmake -B b -DPICO_SDK_PATH={os.environ['AOT_PICO_SDK']} -DPICO_NO_PICOTOOL=1 && cmake --build b -j2", cwd=tmp_path / "p")
    assert all((tmp_path / "p" / "b" / f"p.{e}").is_file() for e in ("elf", "hex", "bin"))
