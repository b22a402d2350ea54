"""Whatever a board says over a serial port, and a program prints, ends in a result or a code: in time, in little memory."""

from __future__ import annotations

import os
import random
import signal
import time
import tty
from collections.abc import Callable
from pathlib import Path

import pytest

from aot.errors import AotError, ToolchainError, UsageError
from aot.micro.board import load_board
from aot.micro.run import qemu, serial, zephyr
from aot.micro.run.qemu import Finished, execute, result_of
from aot.micro.run.serial import SerialLink, SerialPort, framed, opened, parse_answer, parse_port, whole_seconds
from aot.system import process
from aot.testing.serial_board import serial_board
from tests.regression.untrusted.mutate import mutants

IMAGE = "00112233aabbccdd"
DATA = bytes(range(100))


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serial, "ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(serial, "SEND_SECONDS", 0.1)


def talk(fault: str, change: Callable[[SerialPort], None] = lambda port: None) -> bytes:
    with serial_board(IMAGE, fault) as path, opened(path) as port:
        link = SerialLink(port, "zephyr:desk")
        link.hello(IMAGE, seconds=60.0 if fault != "endless" else 1.0)
        change(port)
        return link.run([DATA], [len(DATA)], timeout=60.0 if fault != "flood" else 0.2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("word", "E5415"), ("positive", "E5415"), ("short", "E5415"), ("digits", "E5415"), ("always bad", "E5415"),
        ("endless", "E5412"), ("flood", "E5415"),
    ],
)  # fmt: skip
def test_answers_that_make_no_sense(fault: str, code: str) -> None:
    with pytest.raises(AotError) as caught:
        talk(fault)
    assert [p.code for p in caught.value.problems] == [code]


def test_one_deadline_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """However quickly each of the answers comes."""
    with pytest.raises(ToolchainError, match="E5414"):
        talk("", lambda port: setattr(port, "end", time.monotonic()))
    assert 15 < whole_seconds(100, 100, sets=1, baud=115200, timeout=1.0) < 60


def test_one_limit_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serial, "MOST_BYTES", 20_000)
    with pytest.raises(ToolchainError, match="E5412"):
        talk("flood", lambda port: setattr(port, "received", 19_000))
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    port = SerialPort(reader, "pipe")
    for _ in range(4):
        os.write(writer, b"x" * 4000)
        port.line(time.monotonic() + 0.01)
    assert len(port._buffer) <= serial.LONGEST + 4096
    os.write(writer, b"y\n")
    assert port.line(time.monotonic() + 5.0) == "x" * (serial.LONGEST - 1) + "y"
    os.close(reader)
    os.close(writer)


def test_a_board_that_does_not_listen() -> None:
    ours, theirs = os.openpty()
    tty.setraw(theirs)
    with opened(os.ttyname(theirs)) as port, pytest.raises(UsageError, match="accepts no bytes"):
        port.send("x" * 10_000_000)
    os.close(ours)
    os.close(theirs)


@pytest.mark.parametrize("text", ["/dev/ttyX:" + "9" * 5000, "/dev/ttyX:0", "/dev/ttyX:00000115200"])
def test_rates(text: str) -> None:
    with pytest.raises(UsageError, match="E5410"):
        parse_port(text)


def test_names() -> None:
    assert parse_port("/dev/ttyX:\u0663") == ("/dev/ttyX:\u0663", 115200)
    with pytest.raises(UsageError, match="E5410"), opened("\0"):
        pass


def test_mutated_answers() -> None:
    whole = framed("aot-out 00 00000000 00ff") + framed("aot-ran fffffffd") + framed("aot-hello 1 0011223344556677 00010011")
    for changed in mutants(whole.encode(), count=2_000, seed=18):
        parse_answer(changed.decode("ascii", "replace"))
    rng = random.Random(18)
    words = ["aot-ok", "aot-out", "aot-ran", "aot-hello", "00", "00000000", "-1", "0x1", "1_0", "zz", "ff" * 49, "", "1"]
    for _ in range(2_000):
        parse_answer(" ".join(rng.choices(words, k=rng.randrange(5))))


# ---- programs of this machine


def script(folder: Path, text: str) -> Path:
    path = folder / "program"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("where", ["", " >&2"])
def test_a_program_that_prints_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    monkeypatch.setattr(qemu, "MOST_TEXT", 1 << 16)
    with pytest.raises(ToolchainError, match="E3011"):
        execute(load_board("host"), script(tmp_path, f"while true; do echo 0123456789{where}; done"), cwd=tmp_path, timeout=600)
    with pytest.raises(process.OutputError):
        process.run_bounded([str(tmp_path / "program")], process.Bounds(600, 1 << 16))


def test_a_program_that_closes_its_output_and_stays(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="E3010"):
        execute(load_board("host"), script(tmp_path, "exec >&- 2>&-\nexec sleep 600"), cwd=tmp_path, timeout=0.2)


def test_what_both_streams_say(tmp_path: Path) -> None:
    done = process.run_program([str(script(tmp_path, "echo out; echo err >&2; exit 3"))])
    assert (done.code, done.out, done.err) == (3, "out\n", "err\n")
    assert execute(load_board("host"), tmp_path / "program", cwd=tmp_path, timeout=600).output == "out\nerr\n"


@pytest.mark.parametrize("number", [signal.SIGRTMIN + 3, 63, 250])
def test_signals_without_a_name(tmp_path: Path, number: int) -> None:
    with pytest.raises(AotError, match=f"E4021.*signal {number}"):
        result_of(load_board("host"), tmp_path, Finished(-number, ""))


def test_long_lines_are_searched_once(tmp_path: Path) -> None:
    """A pattern with .* at its start takes the square of their length: minutes for these."""
    with pytest.raises(AotError, match="E3011"):
        result_of(load_board("host"), tmp_path, Finished(1, "x" * (1 << 20)))
    with pytest.raises(AotError, match=r"E4021.*ERROR: AddressSanitizer: stack"):
        result_of(load_board("host"), tmp_path, Finished(1, "==1==ERROR: AddressSanitizer: stack"))


def test_a_console_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zephyr's: it is not finished either where something always comes."""
    ninja = script(tmp_path, "while true; do echo 0123456789; done")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    ninja.rename(tmp_path / "ninja")
    monkeypatch.setattr(zephyr, "_run_target", lambda *_: "run")
    with pytest.raises(ToolchainError, match=r"E3011.*more than"):
        zephyr._console(tmp_path, "b", 600, most=1 << 16)
    with pytest.raises(ToolchainError, match="E3010"):
        zephyr._console(tmp_path, "b", 0.0, most=1 << 40)


@pytest.mark.parametrize("line", ["aot-out 0", "aot-out zz", "aot-status \x1b[31m\n::error::"])
def test_what_a_console_says(line: str) -> None:
    with pytest.raises(AotError) as caught:
        zephyr._outputs([line], "b")
    assert str(caught.value).isprintable()
