"""What the shell offers for the values of options and arguments, asked for as bash asks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.helper import Cli

ROOT = Path(__file__).resolve().parent.parent.parent
DIGITS = ROOT / "examples" / "digits" / "digits.tflite"
MODELS = ROOT / "tests" / "models"


Ask = Callable[[str], list[str]]


@pytest.fixture
def offered(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """The words for the last one of a command line, which may be empty."""

    def ask(line: str) -> list[str]:
        words = line.split(" ")
        monkeypatch.setenv("_AOT_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
        done = cli()
        assert (done.code, done.err) == (0, "")
        return done.out.split()

    return ask


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("aot boa", ["boards"]),
        ("aot compile m --board nucleo-f", ["nucleo-f446re"]),
        ("aot report m --board host,mps3", ["host,mps3-an547"]),
        ("aot check m --target cortex-m5", ["cortex-m55"]),
        ("aot boards micro", ["microbit"]),
        ("aot explain E121", None),
        ("aot explain SOFTM", ["SOFTMAX"]),
        ("aot compile m --opt ", ["speed", "balanced", "size", "ram"]),
        ("aot compile m --oracle t", ["tflm"]),
        ("aot new d m --kind ardu", ["arduino"]),
        ("aot dump m --after fuse_o", ["fuse_ops"]),
        ("aot report m --format json,ht", ["json,html"]),
        ("aot report m --allow comp", ["compiler"]),
        ("aot run m --quantize n", ["never"]),
        ("aot compile m --board nothing-like-it", []),
    ],
)
def test_words(offered: Ask, line: str, words: list[str] | None) -> None:
    found = offered(line)
    assert found == words if words is not None else "E1210" in found and all(w.startswith("E121") for w in found)


def test_words_of_the_model(offered: Ask) -> None:
    signature = MODELS / "graph_signature.tflite"
    assert offered(f"aot compile {signature} --signature ") != []
    (shape,) = offered(f"aot check {DIGITS} --opt size --shape ")
    assert shape.endswith("=")
    assert shape in offered(f"aot compile {DIGITS} --pin ")
    assert offered(f"aot compile {DIGITS} --subgraph ") == ["0"]


def test_a_broken_model_offers_nothing(offered: Ask, tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(b"TFL3 or not")
    assert offered(f"aot compile {tmp_path}/m.tflite --signature ") == []
    assert offered(f"aot compile {tmp_path}/none.tflite --signature ") == []


def test_the_script_for_the_shell(cli: Cli) -> None:
    done = cli("--show-completion", "bash")
    assert (done.code, done.err) == (0, "")
    assert "_AOT_COMPLETE=complete_bash" in done.out


@pytest.mark.slow
def test_bash_itself(tmp_path: Path) -> None:
    """The printed script, in a shell: the function fills COMPREPLY."""
    (tmp_path / "aot").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m aot "$@"\n')
    (tmp_path / "aot").chmod(0o755)
    script = """
        eval "$(aot --show-completion bash)"
        COMP_WORDS=(aot compile m.tflite --board mps3) COMP_CWORD=4
        _aot_completion aot
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-euc", script], env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("mps3-an547\n", "")
