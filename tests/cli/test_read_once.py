"""Every verb reads the model's file once: a pipe gives it once only, and what is written there meanwhile is not seen."""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
from pathlib import Path

import pytest

from aot.cli.common import compile_model, request
from aot.cli.options import CompileOptions
from tests.cli.helper import Cli

MODEL = Path(__file__).resolve().parents[1] / "models" / "graph_pad_then_conv.tflite"
PIPE = "the pipe"
OTHER = MODEL.with_name("add.tflite")
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
needs_pipes = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")


@pytest.fixture
def pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A named pipe through which the model comes once; a second reader finds it empty."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "m.tflite"
    os.mkfifo(path)

    def feed() -> None:
        path.write_bytes(MODEL.read_bytes())
        while path.exists():  # whoever opens it again must not hang the test
            try:
                os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
            except OSError:
                threading.Event().wait(0.01)

    threading.Thread(target=feed, daemon=True).start()
    return path


@needs_pipes
@pytest.mark.parametrize("words", [["check"], ["compile"], ["dump"]], ids=lambda w: str(w[0]))
def test_verbs_that_compile(cli: Cli, pipe: Path, words: list[str]) -> None:
    done = cli(words[0], pipe, *words[1:])
    pipe.unlink()
    assert done.code == 0, done.err


@needs_pipes
@needs_gcc
@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["verify", PIPE, "--board", "host"],
        ["run", PIPE, "--board", "host", "--inputs", MODEL.with_name("graph_pad_then_conv.golden.npz")],
        ["report", PIPE, "--board", "host"],
        ["new", "project", PIPE],
    ],
    ids=lambda w: str(w[0]),
)
def test_verbs_that_run(cli: Cli, pipe: Path, words: list[object]) -> None:
    done = cli(*(pipe if w == PIPE else w for w in words))
    pipe.unlink()
    assert done.code == 0, done.err


def test_a_swap_in_between(tmp_path: Path) -> None:
    """What is compiled is what was checked and what the reference will run."""
    path = tmp_path / "m.tflite"
    path.write_bytes(MODEL.read_bytes())
    wanted = request(path, CompileOptions(), target="cortex-m4")
    path.write_bytes(OTHER.read_bytes())
    artifact = compile_model(wanted)
    assert artifact.metadata["model"]["sha256"] == hashlib.sha256(wanted.data).hexdigest() != ""
    assert wanted.data == MODEL.read_bytes()


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="there is no /dev/zero")
def test_a_device_without_end(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aot.driver.reading.MAX_BYTES", 1 << 20)
    done = cli("check", "/dev/zero")
    assert (done.code, done.err[:5]) == (2, "E5002")
