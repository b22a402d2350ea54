"""`--watch`: what counts as a change, and rounds of the real verb."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aot.cli.output import Output
from aot.cli.verbs.compile import stamps, wait_for_change, watch
from aot.errors import ModelError, Problem, UsageError
from tests.cli.helper import Cli

ROOT = Path(__file__).resolve().parent.parent.parent
DIGITS = ROOT / "examples" / "digits" / "digits.tflite"


class EndedError(Exception):
    """Stands for Ctrl-C."""


def sleeper(*steps: Callable[[], object]) -> Callable[[float], None]:
    """A sleep in which one step happens each time; after the last one the user has enough."""
    rest: Iterator[Callable[[], object]] = iter(steps)

    def sleep(seconds: float) -> None:
        step = next(rest, None)
        if step is None:
            raise EndedError
        step()

    return sleep


def nothing() -> None:
    pass


def test_a_file_must_come_to_rest(tmp_path: Path) -> None:
    file = tmp_path / "m"
    file.write_bytes(b"1")
    seen = []

    def write(text: bytes) -> Callable[[], object]:
        def step() -> None:
            seen.append(text)
            file.write_bytes(text)

        return step

    before = stamps([file])
    now = wait_for_change(
        [file], before, sleep=sleeper(nothing, write(b"12"), write(b"123"), file.unlink, write(b"1234"), nothing)
    )
    assert seen == [b"12", b"123", b"1234"]
    assert now == stamps([file])
    with pytest.raises(EndedError):
        wait_for_change([file], now, sleep=sleeper(nothing, nothing, nothing))


def test_an_error_waits_for_the_next_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "m"
    file.write_bytes(b"1")
    rounds: list[bool] = []

    def work(again: bool) -> None:
        rounds.append(again)
        if len(rounds) == 2:
            raise ModelError(Problem("E1001", "half a file"))

    def change() -> None:
        file.write_bytes(file.read_bytes() + b".")

    with pytest.raises(EndedError):
        watch([file], work, Output(), sleep=sleeper(change, nothing, change, nothing, nothing))
    assert rounds == [False, True, True]
    captured = capsys.readouterr()
    assert captured.err.startswith("E1001 half a file")
    assert captured.out.count("Ctrl-C to stop") == 3


def test_a_wrong_option_ends_at_once(tmp_path: Path) -> None:
    def work(again: bool) -> None:
        raise UsageError(Problem("E5009", "no such mode"))

    with pytest.raises(UsageError):
        watch([tmp_path], work, Output(), sleep=sleeper())


def test_json_is_one_object(cli: Cli) -> None:
    done = cli("compile", DIGITS, "--watch", "--json")
    assert (done.code, done.json["problems"][0]["code"]) == (2, "E5017")


@pytest.mark.slow
def test_the_verb_compiles_again(tmp_path: Path) -> None:
    """The folder is written first, is replaced after a change, and Ctrl-C ends with 130."""
    model = tmp_path / "m.tflite"
    shutil.copy(DIGITS, model)
    command = [sys.executable, "-m", "aot", "compile", str(model), "-o", str(tmp_path / "o"), "--watch"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    ) as process:
        try:
            first = until_watching(process)
            shutil.copy(ROOT / "tests" / "models" / "graph_two_inputs_two_outputs.tflite", model)
            second = until_watching(process)
        finally:
            process.send_signal(signal.SIGINT)
            late = threading.Timer(30, process.kill)
            late.start()
            code = process.wait()
            late.cancel()
    assert "25,344 MAC" in first
    assert "25,344 MAC" not in second
    assert " write " in second
    assert code == 130


def until_watching(process: subprocess.Popen[str]) -> str:
    """What the process prints up to the line that says it waits."""
    assert process.stdout is not None
    text = ""
    late = threading.Timer(60, process.kill)
    late.start()
    while "Ctrl-C to stop" not in text:
        line = process.stdout.readline()
        assert line, text
        text += line
    late.cancel()
    return text
