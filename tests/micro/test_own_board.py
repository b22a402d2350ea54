"""docs/own-board.md: its commands as they stand there, from a linker script to firmware verified and within its budgets."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.helper import Cli
from tests.models.networks import mobilenet

PAGE = Path(__file__).resolve().parents[2] / "docs" / "own-board.md"
COMMAND = re.compile(r"^ {4}aot (.+)$", re.MULTILINE)
FILE = re.compile(r"^```\w+ (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MOST_COMMANDS = 10


def commands() -> list[str]:
    return COMMAND.findall(PAGE.read_text(encoding="utf-8"))


def test_few_commands() -> None:
    assert 0 < len(commands()) <= MOST_COMMANDS


@pytest.mark.qemu
@pytest.mark.slow
def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    cli = Cli(capsys)
    for name, text in FILE.findall(PAGE.read_text(encoding="utf-8")):
        Path(name).write_text(text, encoding="utf-8")
    Path("vww.tflite").write_bytes(mobilenet(widest=48))
    outputs = {}
    for line in commands():
        words = shlex.split(line, comments=True)
        if "with the board" in line:
            continue
        done = cli(*words)
        assert done.code == 0, f"aot {line}\n{done.out}{done.err}"
        outputs[words[0]] = done.out
    assert re.search(r"ram, rows fed +[\d,]+ +[\d,]+ +fits +[\d,]+ +[\d,]+ +links", outputs["check"])
    assert re.search(r"balanced .*RAM [\d,]+ B short", outputs["check"])
    assert "QEMU netduinoplus2, exact instruction count" in outputs["verify"]
    assert "4/4 sets bit-exact" in outputs["verify"]
    assert "limits kept" in outputs["build"]
    assert Path("firmware/vww.elf").is_file()
    assert Path("src/vww/vww.c").is_file()
    Path("budget.toml").write_text('["@g431-qemu"]\ninstructions = "1 M"\n', encoding="utf-8")
    assert cli(*shlex.split(next(c for c in commands() if c.startswith("report")))).code == 4
