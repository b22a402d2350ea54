"""Names of files and tensors may hold anything; a terminal must not obey them, and no encoding may stumble over them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from aot.cli.output import Output
from aot.errors import Problem
from aot.support.text import escaped, printable

MODEL = Path(__file__).parents[2] / "models" / "add.tflite"
HOSTILE = b"caf\xe9\x1b[31m\nE0000 all is well.tflite"


def aot(*arguments: str | bytes, cwd: Path, **variables: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "aot", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, check=False, env={**os.environ, **variables})


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    with open(os.fsencode(tmp_path) + b"/" + HOSTILE, "wb") as file:
        file.write(MODEL.read_bytes())
    return tmp_path


def test_characters_that_steer_a_terminal_are_escaped() -> None:
    assert escaped("a\x1b[31m\x07\u202e\udce9ü") == "a\\x1b[31m\\x07\\u202e\\udce9ü"
    assert printable("a\nb") == "a\\nb"
    text = str(Problem("E5001", "cannot read 'a\nE0000 fine\r\x1b[2J'", "tensor 3"))
    assert text.splitlines() == ["E5001 tensor 3: cannot read 'a", "    E0000 fine\\r\\x1b[2J' (aot explain E5001)"]


def test_rows_and_tables_hold_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output()
    out.row("import", "a\nE0000\x1b[31m.tflite")
    out.table(("name",), [("x\ny",)])
    assert capsys.readouterr().out.splitlines() == [" import    a\\nE0000\\x1b[31m.tflite", "  name", "  x\\ny"]


@pytest.mark.slow
@pytest.mark.parametrize("variables", [{}, {"PYTHONIOENCODING": "ascii"}])
def test_a_file_name_that_is_no_utf8(hostile: Path, variables: dict[str, str]) -> None:
    done = aot("compile", HOSTILE, "-o", "out", cwd=hostile, **variables)
    assert done.returncode == 0, done.stderr
    assert b"\x1b" not in done.stdout
    assert all(line.startswith((b" ", b"\n")) for line in done.stdout.splitlines())
    meta = json.loads((hostile / "out" / "metadata.json").read_text(encoding="utf-8"))
    assert meta["model"]["file"] == "caf\\udce9\\x1b[31m\\nE0000 all is well.tflite"


@pytest.mark.slow
def test_json_with_such_a_name_is_json(hostile: Path) -> None:
    done = aot("compile", HOSTILE, "-o", b"out\xe9", "--json", cwd=hostile)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["output"] == "out\udce9"


@pytest.mark.slow
def test_errors_with_such_a_name(hostile: Path) -> None:
    done = aot("compile", b"absent" + HOSTILE, cwd=hostile)
    assert done.returncode == 2
    assert done.stderr.startswith(b"E5001 ")
    assert b"\x1b" not in done.stderr
    assert done.stderr.count(b"\n") == 1
