"""Whole networks through the protocol: the same image in the emulator and behind its GDB stub, bytes and counts compared.

AOT_FULL=1 takes all networks of the tests and twenty of the shared corpus, else keyword spotting on every core.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from aot.driver.build import build
from aot.errors import TargetError
from aot.micro.board import Board, load_board
from aot.micro.build.project import prepare
from aot.micro.run.rsp import Client
from aot.micro.run.runner import run
from aot.report.measure.inputs import rule_sets
from tests.micro.run.test_gdb import LINK, QEMU
from tests.models.golden import FOLDER

F405 = "qemu:nucleo-f446re"
CORES = ("microbit", "mps2-an385-v6m", "mps2-an385", "mps2-an386", "mps2-an500", "mps2-an505", "mps3-an547", F405)
SHARED = FOLDER.parents[2] / "shared" / "models" / "nets"
OWN = sorted(FOLDER.glob("net_*.tflite"))
_MOST = 400_000
"""Bytes of a corpus model: emulated microseconds are real ones."""
CORPUS = sorted((p for p in SHARED.glob("*.tflite") if p.stat().st_size < _MOST), key=lambda p: (-p.stat().st_size, p.name))
KWS = FOLDER / "net_kws_dscnn.tflite"
CHOSEN = [*OWN, *CORPUS[:: max(1, len(CORPUS) // 20)][:20]] if os.environ.get("AOT_FULL") else [KWS]
SAMPLE = {(F405, "net_kws_dscnn")}
MOST_PACKETS = 1000


def served(board: Board) -> Board:
    """The board behind QEMU's stub."""
    server = ("qemu-system-arm", "-M", board.machine, "-cpu", board.qemu_cpu, *QEMU, "tcp:127.0.0.1:{port}")
    return replace(board, kind="gdb", machine="", qemu_cpu="", gdb=replace(LINK, server=server))


def compare(path: Path, board: Board, folder: Path) -> None:
    """Bytes, counts and stack agree; skips what the board has no room for."""
    artifact = build(path, target=board.cpu)
    sets = rule_sets(artifact.metadata["inputs"], 2).inputs
    try:
        project = prepare(artifact, board, folder=folder)
        project.image("measure")
    except TargetError as error:
        pytest.skip(f"{path.stem} does not fit {board.name}: {error.problems[0].message[:80]}")
    native = run(project, sets)
    result = run(replace(project, board=served(board)), sets)
    assert (result.instructions, result.stack_bytes) == (native.instructions, native.stack_bytes)
    assert result.workspace_extent == native.workspace_extent
    for got, want in zip(result.outputs, native.outputs, strict=True):
        for g, w in zip(got, want, strict=True):
            assert g.tobytes() == w.tobytes()


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("board", "path"),
    [
        pytest.param(b, p, id=f"{b}-{p.stem}", marks=() if (b, p.stem) in SAMPLE else pytest.mark.slow)
        for b in CORES
        for p in CHOSEN
    ],
)
def test_networks_through_the_protocol(board: str, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the protocol costs are its packets, each of which waits for an answer: they are counted."""
    packets: list[bytes] = []
    send = Client.send
    monkeypatch.setattr(Client, "send", lambda client, packet: packets.append(packet) or send(client, packet))
    compare(path, load_board(board), tmp_path)
    print(f"{len(packets)} packets")
    assert 0 < len(packets) <= MOST_PACKETS
