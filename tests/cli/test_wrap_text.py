"""Narrow terminals: every verb at 60 and 80 columns, nothing cut and nothing lost."""

from __future__ import annotations

import os
import pty
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ

import pytest

from aot.cli import output
from aot.cli.output import fold, fold_prose, fold_table, shown
from tests.cli.helper import Cli

ROOT = Path(__file__).resolve().parent.parent.parent
NET = ROOT / "tests" / "models" / "net_kws_dscnn.tflite"
DIGITS = ROOT / "examples" / "digits" / "digits.tflite"


def test_a_line_goes_on_below() -> None:
    assert fold(" label     one two three", 20, hang=11) == " label     one two\n           three"
    assert fold("one two", None, hang=2) == fold("one two", 7, hang=2) == "one two"
    assert fold("a /a/path/of/one/word b", 10, hang=2) == "a\n  /a/path/of/one/word\n  b"
    assert shown("\x1b[36mab\x1b[0m") == 2


def test_prose_keeps_code_and_lists() -> None:
    text = "one two three\nfour\n\n* five six seven\n\n    code that is not to be touched"
    assert fold_prose(text, 12) == "one two\nthree four\n\n* five six\n  seven\n\n    code that is not to be touched"
    assert fold_prose(text, None) == text


def test_tables() -> None:
    headers, cells = ("n", "op", "what"), [["0", "CONV_2D", "some words that are long enough to be folded"]]
    lines = ["  n  op       what", "  0  CONV_2D  some words that are long enough to be folded"]
    assert fold_table(headers, cells, lines, 80) == lines
    assert fold_table(headers, cells, lines, 42)[1] == "  0  CONV_2D  some words that are long\n" + " " * 14 + (
        "enough to be folded"
    )
    assert fold_table(headers, [["0", "CONV_2D", "12345678"]], lines, 20) == ["  n op: what", "  0 CONV_2D: what\n    12345678"]


QUICK = (f"check {NET}", "boards", "explain E1203")
SLOW = (
    f"compile {NET} -o OUT", f"compile {NET} -o OUT -v", "boards mps2-an386", "targets", "ops", "explain", "explain CONV_2D",
    f"new OUT {DIGITS}", f"dump {NET} --list",
)  # fmt: skip
WITH_TOOLS = (
    "doctor", f"verify {NET} --board host --random 1", f"verify {DIGITS} -v", f"report {DIGITS} -o OUT --no-require-reference -v",
    f"explore {DIGITS} --steps 1", f"build {DIGITS} -o OUT -v", f"check {DIGITS} --board mps2-an386",
    f"run {DIGITS} --board host --inputs {DIGITS.parent}/test_images.npz",
)  # fmt: skip


def words(text: str) -> set[str]:
    return {w for w in (x.strip(":·─") for x in re.sub(r"\x1b\[\d+m", "", text).split()) if w not in ("", "-")}


@pytest.mark.parametrize(
    "line",
    [
        *QUICK,
        *(pytest.param(x, marks=pytest.mark.slow) for x in SLOW),
        *(pytest.param(x, marks=(pytest.mark.qemu, pytest.mark.slow)) for x in WITH_TOOLS),
    ],
)
def test_every_verb(line: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(width: int | None) -> str:
        monkeypatch.setattr(output, "width_of", lambda stream: width)
        where = tmp_path / str(width)
        where.mkdir()
        monkeypatch.chdir(where)
        done = cli(*(where.with_name("same") if w == "OUT" else w for w in line.split()), *(["--force"] if force else []))
        assert done.code in (0, 6), done.err
        return done.out

    force: bool = False
    wide = run(None)
    force = " OUT" in line and not line.startswith("report")
    for width in (60, 80):
        narrow = run(width)
        for text in narrow.splitlines():
            assert shown(text) <= width or " " not in text.strip() or text.startswith("    "), text
        assert words(wide) - words(narrow) <= _changing(wide), width


def _changing(text: str) -> set[str]:
    """Figures of this machine, which differ from run to run."""
    return {w for w in words(text) if re.fullmatch(r"[\d.,]+", w) and "cached models" in text}


@pytest.mark.slow
def test_on_a_terminal(tmp_path: Path) -> None:
    """A real one, of 60 columns."""
    main, child = pty.openpty()
    ioctl(child, TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")} | {
        "PYTHONPATH": str(ROOT),
        "TERM": "xterm",
    }
    command = [sys.executable, "-m", "aot", "targets"]
    with subprocess.Popen(command, stdout=child, stdin=child, env=environment, cwd=tmp_path) as process:
        os.close(child)
        text = b"".join(iter(_reader(main), b"")).decode()
    assert process.returncode == 0
    assert "cortex-m85" in text
    assert max(map(shown, text.splitlines())) <= 60


def _reader(descriptor: int) -> Callable[[], bytes]:
    def read() -> bytes:
        try:
            return os.read(descriptor, 4096)
        except OSError:  # the other end is closed
            return b""

    return read
