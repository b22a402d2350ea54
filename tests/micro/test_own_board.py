"""A board of one's own from a linker script, and on it a network that only fits when its image comes row by row.

tests/site runs the commands of docs/own-board.md.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.helper import Cli
from tests.models.networks import mobilenet
from tests.site.pages import SHELL, blocks

PAGE = "docs/own-board.md"
MOST_COMMANDS = 10


def test_few_commands() -> None:
    commands = [c for b in blocks(PAGE) if b.language in SHELL for c, _ in b.commands()]
    assert 0 < len(commands) <= MOST_COMMANDS
    assert all(c.startswith("aot ") for c in commands)


@pytest.mark.qemu
@pytest.mark.slow
def test_rows_fed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    cli = Cli(capsys)
    script = next(b for b in blocks(PAGE) if b.language == "ld")
    Path(script.name).write_text(script.text, encoding="utf-8")
    Path("vww.tflite").write_bytes(mobilenet(widest=48))
    options = ("--opt", "ram", "--feed-rows", "--budget", "budget.toml")
    assert cli("boards", "new", "--from", script.name, "--cpu", "cortex-m4", "-o", "boards/g431").code == 0
    checked = cli("check", "vww.tflite", "--board", "boards/g431").out
    assert re.search(r"ram, rows fed +[\d,]+ +[\d,]+ +fits +[\d,]+ +[\d,]+ +links", checked)
    assert re.search(r"balanced --ram-budget \d+ ", checked)
    Path("budget.toml").write_text('flash = "112 KiB"\nram = "20 KiB"\n["@g431-qemu"]\ninstructions = "1 M"\n', encoding="utf-8")
    assert "limits met" in cli("build", "vww.tflite", "--board", "boards/g431", *options, "-o", "firmware").out
    assert Path("firmware/vww.elf").is_file()
    reported = cli("report", "vww.tflite", "--board", "qemu:boards/g431", *options, "--format", "json")
    assert reported.code == 4
    assert "instructions" in reported.out + reported.err
