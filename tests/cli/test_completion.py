"""What the shell offers for the values of options and arguments, asked for as bash asks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import shellingham

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


@pytest.mark.parametrize("words", [("--show-completion", "bash"), ("--show-completion=bash",)])
def test_the_script_for_the_shell(cli: Cli, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that is named, whichever shell runs this."""
    monkeypatch.setattr("shellingham.detect_shell", lambda: ("zsh", "/bin/zsh"))
    done = cli(*words)
    assert (done.code, done.err) == (0, "")
    assert "_AOT_COMPLETE=complete_bash" in done.out
    assert "_AOT_COMPLETE=complete_zsh" in cli("--show-completion").out


def test_the_script_without_a_shell(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> tuple[str, str]:
        raise shellingham.ShellDetectionFailure

    monkeypatch.setattr("shellingham.detect_shell", none)
    done = cli("--show-completion")
    assert done.code == 2
    assert "no shell detected; name one of bash, zsh" in done.err
    monkeypatch.setattr("shellingham.detect_shell", lambda: ("tcsh", "/bin/tcsh"))
    assert "there is no script for tcsh" in cli("--show-completion").err
    assert "--show-completion ksh: choose one of bash, zsh" in cli("--show-completion", "ksh").err


def test_no_parent_is_a_shell() -> None:
    """As cron and some build services start programs: a session of its own, whose parent is no shell."""
    command = [sys.executable, "-m", "aot", "--show-completion", "bash"]
    code = f"import os, sys; os.setsid(); os.fork() and os._exit(0); os.execv(sys.executable, {command})"
    environment = {k: v for k, v in os.environ.items() if k != "SHELL"} | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert "_AOT_COMPLETE=complete_bash" in done.stdout
    assert done.stderr == ""


def test_the_script_is_installed(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    done = cli("--install-completion", "bash")
    assert (done.code, done.err) == (0, "")
    (script,) = tmp_path.glob(".bash_completions/*")
    assert str(script) in done.out
    assert "_AOT_COMPLETE=complete_bash" in script.read_text()
    assert str(script) in (tmp_path / ".bashrc").read_text()


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
