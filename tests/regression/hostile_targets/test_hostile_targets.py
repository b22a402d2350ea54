"""Whatever a GDB server or an image says ends in a result or a code: in time, in little memory, and outside no file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from aot.errors import AotError, UsageError
from aot.micro.board import GdbLink, load_board, parse_board
from aot.micro.run import gdb, qemu, rsp
from aot.micro.run.qemu import read_report
from aot.micro.run.rsp import parse_memory_map
from aot.micro.run.runner import RunResult, _read_trace, run
from tests.micro.run.test_gdb import text_of
from tests.regression.hostile_targets.server import (
    CLOSE,
    EXIT,
    LENGTH,
    LOOP,
    READ,
    SEEK,
    SPOT,
    WRITE,
    WRITE0,
    Call,
    Server,
    opening,
    printing,
    run_of,
)  # fmt: skip

GOOD = b'{"aot": 1, "status": 0, "sets": 1, "units": 4000, "all": 4000, "most": 4000, "loop": 200000, "stack": 96}\n'
META = {
    "inputs": [{"index": 0, "name": "x", "dtype": "int8", "size": 4, "shape": [4]}],
    "outputs": [{"index": 0, "name": "y", "dtype": "int8", "size": 4, "shape": [4]}],
    "layers": [],
}
IMAGE = bytes(range(256)) * 4


@pytest.fixture(autouse=True)
def _image(monkeypatch: pytest.MonkeyPatch) -> None:
    """An image of plain bytes; and no patience, as these servers have all of it."""
    monkeypatch.setattr(gdb, "symbol_addresses", lambda _: {"aot_vectors": 0})
    monkeypatch.setattr(gdb, "call_spot", lambda _: SPOT)
    monkeypatch.setattr(gdb, "_loop", lambda _: LOOP)
    monkeypatch.setattr(gdb, "function_at", lambda *_: "main")
    monkeypatch.setattr(qemu, "function_at", lambda *_: "main")
    monkeypatch.setattr(gdb, "segments", lambda _: [(0, IMAGE)])
    monkeypatch.setattr(gdb, "LAST_SECONDS", 0.1)


def attempt(server: Server, tmp_path: Path, *, timeout: float = 20.0, mode: str = "measure", load: str = "ram") -> RunResult:
    link = GdbLink(f"127.0.0.1:{server.port}", (), (), load, (), 0, (), "", -1)
    board = replace(load_board("mps2-an386"), kind="gdb", machine="", qemu_cpu="", gdb=link)
    elf = tmp_path / "firmware.elf"
    elf.write_bytes(IMAGE)
    project: Any = SimpleNamespace(artifact=SimpleNamespace(metadata=META), board=board, image=lambda _: elf)
    try:
        return run(project, [[np.zeros(4, np.int8)]], mode=mode, timeout=timeout)
    finally:
        server.close()


def code_of(server: Server, tmp_path: Path, **options: Any) -> str:
    with pytest.raises(AotError) as error:
        attempt(server, tmp_path, **options)
    return "".join(problem.code for problem in error.value.problems)


def test_an_honest_server(tmp_path: Path) -> None:
    server = Server(run_of(GOOD))
    assert attempt(server, tmp_path).instructions == 4000
    assert server.registers[15] == LOOP


REPORTS = {
    "negative count": GOOD.replace(b'"units": 4000', b'"units": -9000000'),
    "huge count": GOOD.replace(b'"units": 4000', b'"units": ' + b"9" * 30),
    "5,000 digits": GOOD.replace(b'"units": 4000', b'"units": ' + b"9" * 5000),
    "float count": GOOD.replace(b'"units": 4000', b'"units": 4e3'),
    "NaN": GOOD.replace(b'"units": 4000', b'"units": NaN'),
    "bool": GOOD.replace(b'"sets": 1', b'"sets": true'),
    "text": GOOD.replace(b'"stack": 96', b'"stack": "96"'),
    "null": GOOD.replace(b'"loop": 200000', b'"loop": null'),
    "no sets": GOOD.replace(b'"sets": 1, ', b""),
    "0 sets": GOOD.replace(b'"sets": 1', b'"sets": 0'),
    "2 sets": GOOD.replace(b'"sets": 1', b'"sets": 2'),
    "no status": GOOD.replace(b'"status": 0, ', b""),
    "status of text": GOOD.replace(b'"status": 0', b'"status": "0"'),
    "status above 0": GOOD.replace(b'"status": 0', b'"status": 1'),
    "stack beyond the memory": GOOD.replace(b'"stack": 96', b'"stack": 4294967296'),
    "a longest run that is shorter": GOOD.replace(b'"most": 4000', b'"most": 3999'),
    "less in all than in one": GOOD.replace(b'"all": 4000', b'"all": 3999'),
    "touched beyond the extent": GOOD.replace(b'"stack": 96', b'"touched": 2, "extent": 1'),
    "layers that are none": GOOD.replace(b'"stack": 96', b'"layers": {}'),
    "layers of text": GOOD.replace(b'"stack": 96', b'"layers": ["1"]'),
    "too many layers": GOOD.replace(b'"stack": 96', b'"layers": [1]'),
    "deep": b'{"aot": 1, "status": ' + b"[" * 20_000 + b"\n",
    "deep objects": b'{"aot": 1' + b', "a": {"a": 1' * 2_000 + b"\n",
    "cut": GOOD[:40] + b"\n",
    "no result": b"hello\n",
    "error of a wrong kind": b'{"aot": 1, "error": {"a": 1}}\n',
    "surrogate": b'{"aot": 1, "error": "\\ud800"}\n',
    "escape sequence": b'{"aot": 1, "error": "\\u001b[2J\\n::error::x"}\n',
}
FAULTS = {
    "a list": b'{"aot": 1, "fault": []}\n',
    "nothing": b'{"aot": 1, "fault": {}}\n',
    "a number": b'{"aot": 1, "fault": 7}\n',
    "words of wrong kinds": b'{"aot": 1, "fault": {"pc": 4, "lr": null, "sp": [1], "cfsr": true}}\n',
    "no stack pointer": b'{"aot": 1, "fault": {"pc": "0x00000004"}}\n',
}


@pytest.mark.parametrize("kind", REPORTS)
def test_reports_that_make_no_sense(kind: str, tmp_path: Path) -> None:
    with pytest.raises(AotError, match=r"E3011|E3041") as error:
        attempt(Server(run_of(REPORTS[kind])), tmp_path)
    assert all(c.isprintable() or c == "\n" for c in str(error.value))
    assert "\n::" not in str(error.value)


@pytest.mark.parametrize("kind", FAULTS)
def test_reports_of_faults(kind: str, tmp_path: Path) -> None:
    assert code_of(Server(run_of(FAULTS[kind])), tmp_path) in ("E3011", "E4020")


PROGRAMS: dict[str, tuple[Sequence[Call], str]] = {
    "an operation that there is not": ([Call(0x99, (0,))], "E3041"),
    "no output": ([printing(GOOD)], "E3011"),
    "an end with a failure": ([*run_of(GOOD)[:-1], Call(EXIT, (1, 2))], "E3011"),
    "an exit code that there is not": ([printing(GOOD), Call(EXIT, (0x20026, 0xFFFF0000))], "E3011"),
    "output that is too long": ([opening(b"outputs.bin", 5), Call(WRITE, (1, 0, 5)), Call(CLOSE, (1,)), printing(GOOD)], "E3011"),
    "output that nobody closes": ([opening(b"outputs.bin", 5), Call(WRITE, (1, 0, 5)), printing(GOOD)], "E3011"),
    "a size of 4 GB": ([opening(b"outputs.bin", 5), Call(WRITE, (1, 0, 0xFFFFFFFF)), printing(GOOD)], "E3011"),
}


@pytest.mark.parametrize("kind", PROGRAMS)
def test_programs_that_do_something_else(kind: str, tmp_path: Path) -> None:
    program, code = PROGRAMS[kind]
    assert code_of(Server(program), tmp_path) == code


def test_only_the_files_of_the_harness_are_opened(tmp_path: Path) -> None:
    names = (b"a\0b", b"../x", b"/etc/passwd", b"x.bin", b"\xff\xfe", b"", b".", b"inputs.bin\n", b"n" * 4000)
    written = [opening(name, mode) for name in names for mode in (1, 5, 0xFFFFFFFF)] + [opening(b"inputs.bin", 5)]
    server = Server([*written, *run_of(GOOD)])
    attempt(server, tmp_path)
    assert server.results[1 : 1 + len(written)] == [0xFFFFFFFF] * len(written)
    assert os.listdir(tmp_path) == ["firmware.elf"]


def test_handles_are_few(tmp_path: Path) -> None:
    server = Server([*[opening(b"inputs.bin", 1)] * 100, printing(GOOD)])
    assert code_of(server, tmp_path) == "E3011"
    assert server.results.count(0xFFFFFFFF) == 92


def test_a_seek_makes_no_file_longer(tmp_path: Path) -> None:
    calls = [Call(SEEK, (1, 0xFFFFFFF0)), Call(SEEK, (9, 0)), Call(LENGTH, (9,)), Call(READ, (1, 0, 4)), Call(WRITE, (9, 0, 4))]
    server = Server([opening(b"outputs.bin", 5), *calls, Call(WRITE, (1, 0, 4)), Call(CLOSE, (1,)), printing(GOOD)])
    assert attempt(server, tmp_path).outputs[0][0].nbytes == 4
    assert server.results[2:7] == [0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 4, 4]


def test_text_without_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gdb, "_TEXT", 4096)
    assert code_of(Server([Call(WRITE0, everywhere=b"A")]), tmp_path) == "E3041"
    assert code_of(Server([printing(b"A" * 100)], repeat=True), tmp_path) == "E3041"


@pytest.mark.parametrize("call", [printing(b"x"), printing(b""), Call(SEEK, (1, 0)), opening(b"trace.bin", 1)])
def test_a_program_without_an_end(call: Call, tmp_path: Path) -> None:
    """It is lively all the time: each call is answered at once."""
    assert code_of(Server([call], repeat=True), tmp_path, timeout=0.1) == "E3010"


@pytest.mark.parametrize("mode", ["trace", "profile", "poison"])
def test_other_modes(mode: str, tmp_path: Path) -> None:
    if mode == "trace":
        assert code_of(Server(run_of(GOOD)), tmp_path, mode=mode) == "E3011"
    else:
        assert attempt(Server(run_of(GOOD)), tmp_path, mode=mode).layers == ()


STREAMS = {
    "console text without end": b"$O41#b4",
    "empty packets": b"$#00",
    "packets with wrong sums": b"$OK#00",
    "run lengths": b"$" + b"0*~" * 20_000 + b"#%02x" % (sum(b"0*~" * 20_000) & 0xFF),
    "no packet at all": b"noise",
    "stops": b"$T05#b9",
    "a packet without end": b"$" + b"A" * 4096,
    "acknowledgements": b"+" * 4096,
}


@pytest.mark.slow
@pytest.mark.parametrize("where", [b"qSupported", b"X", b"c"])
@pytest.mark.parametrize("kind", STREAMS)
def test_streams_without_an_end(kind: str, where: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rsp, "ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(rsp.Client.ask, "__kwdefaults__", {"seconds": 0.2})
    monkeypatch.setattr(rsp, "MEMORY", 1 << 21)
    assert code_of(Server(run_of(GOOD), raw={where: STREAMS[kind]}), tmp_path, timeout=0.2) in ("E3010", "E3041")


def test_loading_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that answers each request at once, with one byte."""
    monkeypatch.setattr(gdb, "LOAD_SECONDS", 0.0)
    monkeypatch.setattr(gdb, "LOAD_BYTES_A_SECOND", len(IMAGE) * 20)
    server = Server(run_of(GOOD), answers={b"m": b"00"})
    monkeypatch.setattr(gdb, "segments", lambda _: [(0, bytes(1 << 24))])
    with pytest.raises(AotError, match=r"E3010.*was not loaded in time"):
        attempt(server, tmp_path, load="none")


MAPS = {
    "negative": '<memory type="flash" start="-1" length="0x10000"/>',
    "a block of nothing": '<memory type="flash" start="0" length="0x10000"><property name="blocksize">-1</property></memory>',
    "beyond the address space": '<memory type="flash" start="0" length="0x1000000000000"/>',
    "5,000 digits": f'<memory type="flash" start="{"9" * 5000}" length="1"/>',
    "deep": "<a>" * 100_000,
    "many": '<memory type="ram" start="0" length="1"/>' * 10_000,
}


@pytest.mark.parametrize("kind", MAPS)
def test_memory_maps(kind: str) -> None:
    assert parse_memory_map(f"<memory-map>{MAPS[kind]}</memory-map>".encode()) == []


@pytest.mark.parametrize("data", [b"\0", b"\0" * 8, b"\0\0\0\0\xff\xff\xff\xff", b"\0\0\0\0\x04\0\0\0abc", b"\7\0\0\0\0\0\0\0"])
def test_traces(data: bytes) -> None:
    layers = [{"index": 0, "output": META["outputs"][0]}]  # type: ignore[index]
    with pytest.raises(AotError, match=r"E3011.*trace\.bin is malformed at byte 0"):
        _read_trace(layers, data)


def test_reports_are_short() -> None:
    with pytest.raises(ValueError, match="it does not have the harness's format"):
        read_report('{"aot": 1' + " " * (1 << 20) + "}", memory=1)


def test_reports_of_the_harness_are_read_whole() -> None:
    report = read_report('{"aot": 1, "status": 0, "sets": 2, "units": 1, "all": 3, "most": 2, "layers": [1, 0]}', memory=1)
    assert (report.sets, report.units, report.all, report.most, report.layers, report.stack) == (2, 1, 3, 2, (1, 0), None)
    assert read_report('{"aot": 1, "set": 3, "status": -7}', memory=1).status == -7


@pytest.mark.parametrize("connect", ["127.0.0.1:99999", "localhost", ":"])
def test_ports_that_there_are_not(connect: str) -> None:
    text = text_of("mps2-an386", f'[gdb]\nconnect = "{connect}"\n')
    with pytest.raises(UsageError, match=r"E5021"):
        parse_board(text, "b/board.toml")
    server = text_of("mps2-an386", f'[gdb]\nserver = ["x"]\nconnect = "{connect}"\n')
    with pytest.raises(UsageError, match=r"E5021"):
        parse_board(server, "b/board.toml")
