"""Every shell block of the documentation is run, or says why not."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests.cli.helper import Cli
from tests.site.pages import MADE, ROOT, SHELL, Block, blocks, files, name_of, pages, prose

ALL = [block for page in pages() for block in blocks(name_of(page))]
_LEVELS = {"run: quick": [], "run": [pytest.mark.slow], "run: qemu": [pytest.mark.qemu]}
"""What runs a block, from the quickest to the slowest."""

_OF_README = re.compile(r"run: (demo|test|verify)")
_COMMAND = re.compile(r"^\s*(\$ |aot |pip |make |python3? |west |\./setup|cmake |git )", re.MULTILINE)


def test_every_shell_block_is_run_or_says_why_not() -> None:
    """0 unmarked, in all pages."""
    shell = [b for b in ALL if b.language in SHELL]
    assert len(shell) > 40
    unmarked = [
        f"{b.place}: no mark"
        for b in shell
        if b.mark not in _LEVELS
        and not re.fullmatch(r"not run: \w.{8,}", b.mark)
        and not (b.page == "README.md" and _OF_README.fullmatch(b.mark))
    ]
    assert unmarked == []
    assert sum(b.mark in _LEVELS for b in shell) > len(shell) // 2


def test_commands_are_in_shell_blocks() -> None:
    """Nothing hides from the test above: no command in a block of another kind, and no indented blocks."""
    other = [b.place for b in ALL if b.language in ("", "text", "bash", "shell") and _COMMAND.match(b.text)]
    assert other == [], "these look like commands: make them sh or console"
    assert [b.place for b in ALL if not b.language] == [], "a block has a language, be it text"
    indented = [
        f"{name_of(page)}:{number}"
        for page in pages()
        for number, (before, line) in enumerate(_pairs(prose(name_of(page))), 2)
        if not before.strip() and re.match(r" {4,}(?![-*] |\d+\. )\S", line)
    ]
    assert indented == [], "fence these"


def _pairs(text: str) -> list[tuple[str, str]]:
    lines = text.splitlines()
    return list(pairwise(lines))


def runnable() -> list[object]:
    """One case a page: its blocks build on each other, so all of them run where the slowest of them does."""
    cases: list[object] = []
    for page in map(name_of, pages()):
        levels = [list(_LEVELS).index(b.mark) for b in blocks(page) if b.language in SHELL and b.mark in _LEVELS]
        if levels:
            cases.append(pytest.param(page, id=page, marks=list(_LEVELS.values())[max(levels)]))
    return cases


def stage(page: str, folder: Path) -> None:
    """The reader's folder: the repository's examples and tests, the page's files, and those that its blocks show."""
    for name in ("examples", "tests", "samples"):
        (folder / name).symlink_to(ROOT / name)
    for name, source in files(page).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(MADE[source]() if source in MADE else (ROOT / source).read_bytes())
    for block in blocks(page):
        if block.name:
            (folder / block.name).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.name).write_text(block.text, encoding="utf-8")
    (folder / "bin").mkdir()
    program = folder / "bin" / "aot"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m aot "$@"\n', encoding="utf-8")
    program.chmod(0o755)


def run(command: str, cli: Cli, folder: Path) -> tuple[int, str]:
    """Exit code and everything printed; one of ours runs in this process."""
    command = command.replace(".venv/bin/aot", "aot")
    words = shlex.split(command, comments=True)
    plain = not set(command.partition("#")[0]) & set("<>|$;&*\n")
    if words[0] == "aot" and plain and "--plugin" not in words:  # what a plug-in registers stays in its process
        done = cli(*words[1:])
        return done.code, done.out + done.err
    path = f"{folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    shell = subprocess.run(
        ["bash", "-euc", command],
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return shell.returncode, shell.stdout + shell.stderr


def shown(line: str, output: str) -> bool:
    """Whether a line of a transcript is in the output; `…` stands for anything."""
    pattern = r"[^\n]*".join(re.escape(part) for part in line.rstrip().split("…"))
    return re.search(rf"^{pattern}$", output, re.MULTILINE) is not None


def missing(block: Block) -> str:
    """A program that the block begins with and that is not here."""
    wanted = {line.split()[0] for line in block.text.splitlines() if block.language == "sh" and re.match(r"[a-z]", line)}
    needs = {"make": ("make", "arm-none-eabi-gcc"), "cmake": ("cmake",)}
    for name in wanted:
        for tool in needs.get(name, (name,) if name.startswith("arm-") else ()):
            if shutil.which(tool) is None:
                return tool
    return ""


@pytest.mark.parametrize("page", runnable())
def test_commands(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    stage(page, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    cli = Cli(capsys)
    for block in blocks(page):
        if block.language not in SHELL or block.mark not in _LEVELS:
            continue
        if tool := missing(block):
            pytest.skip(f"{tool} is not installed")
        for command, lines in block.commands():
            code, output = run(command, cli, tmp_path)
            assert code == 0, f"{block.place}: {command}\n{output[-3000:]}"
            for line in lines:
                assert shown(line, output), f"{block.place}: {command}\ndoes not print\n{line}\nbut\n{output[-3000:]}"


def test_transcripts_are_compared() -> None:
    output = "a\n plan      workspace 140 B (optimal) · rows 720 B\n"
    assert shown(" plan      workspace 140 B (optimal) · rows 720 B", output)
    assert shown(" plan      workspace … rows 720 B", output)
    assert not shown(" plan      workspace 141 B …", output)
    console = Block("x.md", 1, "console", "", "run", "$ aot boards\nhost\n…\n$ aot ops\n")
    assert console.commands() == [("aot boards", ["host", "…"]), ("aot ops", [])]
