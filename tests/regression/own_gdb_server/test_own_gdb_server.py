"""`connect = "HOST:PORT"`: a server that the user started serves one session after the other, and lives on."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aot.errors import ToolchainError, VerificationError
from aot.micro.board import Board, load_board
from aot.micro.run import gdb, rsp
from aot.micro.run.gdb import connected, free_port
from aot.micro.run.runner import run
from tests.micro.run.gdb_proxy import _dial
from tests.micro.run.test_gdb import LINK, QEMU, SMALL, gdb_board
from tests.models.golden import load_golden, sets_of


@contextmanager
def own_server(name: str) -> Iterator[tuple[Board, subprocess.Popen[bytes]]]:
    """QEMU with its stub, as a user starts it, and the board that connects there."""
    usual, port = load_board(name), free_port()
    command = ["qemu-system-arm", "-M", usual.machine, "-cpu", usual.qemu_cpu, *QEMU, f"tcp:127.0.0.1:{port}"]
    qemu = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _dial(port).close()
        board = gdb_board(name, connect=f"127.0.0.1:{port}")
        assert board.gdb is not None
        yield replace(board, gdb=replace(board.gdb, server=())), qemu
    finally:
        qemu.kill()
        qemu.wait()


@pytest.mark.qemu
@pytest.mark.parametrize("name", ["microbit", "mps2-an386", "mps2-an505", "mps3-an547"])
def test_sessions_one_after_the_other(name: str, tmp_path: Path) -> None:
    with own_server(name) as (board, qemu):
        results = []
        for number, mode in enumerate(("measure", "profile", "measure", "trace", "poison")):
            project = SMALL.project(board, tmp_path / str(number), target=board.cpu)
            results.append(run(project, SMALL.inputs, mode=mode))
        assert qemu.poll() is None
    assert results[0].instructions
    assert results[0].instructions == results[2].instructions
    assert results[1].layers
    want = sets_of(load_golden(SMALL.name), "out")
    for result in (results[0], results[1], results[2], results[4]):
        for got, right in zip(result.outputs, want, strict=True):
            np.testing.assert_array_equal(got[0], right[0])


FAULTY = {
    "a fault": ("*(volatile unsigned *)0xfffffff0u = 1", VerificationError, "E4020"),
    "no end": ('for (;;) __asm__ volatile("nop")', ToolchainError, "E3010"),
    "another breakpoint": ('__asm__ volatile("bkpt 1")', VerificationError, "E4020"),
}


@pytest.mark.qemu
@pytest.mark.parametrize("kind", FAULTY)
def test_a_run_that_fails_leaves_the_server_alive(kind: str, tmp_path: Path) -> None:
    statement, error, code = FAULTY[kind]
    with own_server("mps2-an386") as (board, qemu):
        project = SMALL.project(board, tmp_path / "bad", target=board.cpu)
        main = tmp_path / "bad" / "main.c"
        text = main.read_text(encoding="utf-8").replace("add_run(", "aot_fail(), add_run(")
        main.write_text(f"__attribute__((noinline)) static void aot_fail(void) {{ {statement}; }}\n{text}", encoding="utf-8")
        with pytest.raises(error, match=code):
            run(project, SMALL.inputs, timeout=5.0 if kind == "no end" else 600.0)
        assert qemu.poll() is None
        again = replace(board, gdb=replace(board.gdb, reset=("system_reset",)))  # type: ignore[arg-type]
        assert run(SMALL.project(again, tmp_path / "good", target=board.cpu), SMALL.inputs).instructions
        assert qemu.poll() is None


@pytest.mark.qemu
def test_a_session_that_never_runs_leaves_the_server_alive(tmp_path: Path) -> None:
    with own_server("mps2-an386") as (board, qemu):
        empty = replace(board, gdb=replace(board.gdb, load="none"))  # type: ignore[arg-type]
        for number in range(2):
            with pytest.raises(ToolchainError, match="E3043"):
                run(SMALL.project(empty, tmp_path / str(number), target=board.cpu), SMALL.inputs)
        assert qemu.poll() is None
        assert run(SMALL.project(board, tmp_path / "good", target=board.cpu), SMALL.inputs).instructions


def test_another_client_is_attached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a server accepts the connection, and answers when the other client has gone; or it closes it."""
    monkeypatch.setattr(rsp.Client.ask, "__kwdefaults__", {"seconds": 0.1})
    with socket.create_server(("127.0.0.1", 0)) as busy:
        link = replace(LINK, connect=f"127.0.0.1:{busy.getsockname()[1]}")
        with pytest.raises(ToolchainError, match=r"E3041.*perhaps another client is attached"), connected("desk", link):
            pass
    closes = socket.create_server(("127.0.0.1", 0))
    link = replace(LINK, connect=f"127.0.0.1:{closes.getsockname()[1]}")
    dial = gdb._connect

    def closed(*words: object) -> socket.socket:
        stream = dial(*words)  # type: ignore[arg-type]
        closes.accept()[0].close()
        return stream

    monkeypatch.setattr(gdb, "_connect", closed)
    with closes, pytest.raises(ToolchainError, match=r"E3041.*perhaps another client is attached"), connected("desk", link):
        pass
