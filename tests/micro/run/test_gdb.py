"""Boards of kind gdb: our images through GDB's protocol, served by QEMU's stub, plainly and with the habits of other servers."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aot.driver.build import build
from aot.errors import AotError, ToolchainError, UsageError, VerificationError
from aot.micro.board import Board, GdbLink, load_board, parse_board
from aot.micro.build.project import Project, prepare
from aot.micro.run import rsp
from aot.micro.run.gdb import free_port
from aot.micro.run.rsp import parse_memory_map
from aot.micro.run.runner import run
from aot.system.files import data_folder
from tests.micro.run.gdb_proxy import Habits, Proxy
from tests.models.golden import FOLDER, load_golden, sets_of

CORES = ("microbit", "mps2-an385", "mps2-an386", "mps2-an500", "mps2-an505", "mps3-an547")
QEMU = ("-icount", "shift=0,sleep=off", "-nographic", "-monitor", "none", "-serial", "none", "-S", "-gdb")


def text_of(name: str, tables: str) -> str:
    """The board.toml of a board, as one that a GDB server reaches."""
    text = (data_folder("boards") / name / "board.toml").read_text(encoding="utf-8")
    text = text.replace('kind = "qemu"', 'kind = "gdb"', 1)
    return re.sub(r"\[qemu\]\n(?:[^\[]*\n)*?(?=\n?(?:#.*\n)*\[)", tables, text, count=1)


def gdb_board(name: str, **link: object) -> Board:
    """A board of ours behind QEMU's stub; `link` replaces fields of [gdb]."""
    usual = load_board(name)
    server = ("qemu-system-arm", "-M", usual.machine, "-cpu", usual.qemu_cpu, *QEMU, "tcp:127.0.0.1:{port}")
    return replace(usual, kind="gdb", machine="", qemu_cpu="", gdb=replace(LINK, server=server, **link))  # type: ignore[arg-type]


LINK = GdbLink("127.0.0.1:{port}", (), (), "ram", (), 0, (), "", -1)


@dataclass(frozen=True)
class Case:
    """A model with its inputs."""

    name: str

    @property
    def inputs(self) -> list[list[np.ndarray]]:
        return sets_of(load_golden(self.name), "in")

    def project(self, board: Board, folder: Path, *, target: str) -> Project:
        return prepare(build(FOLDER / f"{self.name}.tflite", target=target), board, folder=folder)


SMALL = Case("add")


@contextmanager
def behind(habits: Habits, folder: Path, *, load: str = "ram", reset: tuple[str, ...] = ()) -> Iterator[tuple[Proxy, Project]]:
    """The small model on mps2-an386, and a server with those habits before QEMU's."""
    usual = load_board("mps2-an386")
    port = free_port()
    command = ["qemu-system-arm", "-M", usual.machine, "-cpu", usual.qemu_cpu, *QEMU, f"tcp:127.0.0.1:{port}"]
    qemu = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    proxy = Proxy(port, habits)
    try:
        board = gdb_board("mps2-an386", connect=f"127.0.0.1:{proxy.port}", load=load)
        assert board.gdb is not None
        board = replace(board, gdb=replace(board.gdb, server=(), reset=reset))
        yield proxy, SMALL.project(board, folder, target="cortex-m4")
    finally:
        proxy.close()
        qemu.kill()
        qemu.wait()


@pytest.mark.qemu
@pytest.mark.parametrize("name", CORES)
def test_the_same_bytes_and_counts_as_in_the_emulator(name: str, tmp_path: Path) -> None:
    case = Case("net_sww" if name == "mps2-an386" else "add")
    usual = load_board(name)
    native = run(case.project(usual, tmp_path / "native", target=usual.cpu), case.inputs)
    result = run(case.project(gdb_board(name), tmp_path / "gdb", target=usual.cpu), case.inputs)
    assert result.instructions == native.instructions
    assert result.stack_bytes == native.stack_bytes
    for got, want in zip(result.outputs, native.outputs, strict=True):
        for g, w in zip(got, want, strict=True):
            np.testing.assert_array_equal(g, w)


@pytest.mark.qemu
@pytest.mark.parametrize("mode", ["profile", "trace", "poison"])
def test_every_mode(mode: str, tmp_path: Path) -> None:
    usual = load_board("mps2-an386")
    native = run(SMALL.project(usual, tmp_path / "native", target="cortex-m4"), SMALL.inputs, mode=mode)
    result = run(SMALL.project(gdb_board("mps2-an386"), tmp_path / "gdb", target="cortex-m4"), SMALL.inputs, mode=mode)
    assert [layer.instructions for layer in result.layers] == [layer.instructions for layer in native.layers]
    assert len(result.outputs) == len(native.outputs)


HABITS = {
    "no X": Habits(no_binary=True),
    "no X in packets of 64 bytes": Habits(packet_size=64, no_binary=True),
    "answers byte by byte": Habits(split=True),
    "late answers": Habits(late=0.002),
    "console output before each OK": Habits(console=True),
    "acknowledgements and noise between packets": Habits(garbage=b"++\r\n"),
    "no hardware breakpoints": Habits(broken={b"Z1": b""}),
}


@pytest.mark.qemu
@pytest.mark.parametrize("habit", HABITS)
def test_habits_of_servers(habit: str, tmp_path: Path) -> None:
    with behind(HABITS[habit], tmp_path) as (_, project):
        result = run(project, SMALL.inputs)
    golden = load_golden(SMALL.name)
    for got, want in zip(result.outputs, sets_of(golden, "out"), strict=True):
        np.testing.assert_array_equal(got[0], want[0])
    assert result.instructions


@pytest.mark.qemu
@pytest.mark.parametrize("size", [None, pytest.param(64, marks=pytest.mark.slow)])
def test_flash_is_erased_by_blocks_and_written_once(size: int | None, tmp_path: Path) -> None:
    habits = Habits(flash=(0, 0x400000, 0x1000), packet_size=size)
    with behind(habits, tmp_path, load="flash") as (proxy, project):
        first = run(project, SMALL.inputs)
        assert first.instructions
        written = [p for p in proxy.seen if p.startswith(b"vFlashWrite")]
    assert proxy.erased
    assert len(proxy.erased) == len(set(proxy.erased))
    assert all(start % 0x1000 == 0 and length == 0x1000 for start, length in proxy.erased)
    assert written


FLASH = (0, 0x400000, 0x1000)
FAULTS = {
    "hangs up while it loads": (Habits(close_after=20), "ram", "E3041"),
    "hangs up at once": (Habits(close_after=0), "ram", "E3041"),
    "no breakpoints at all": (Habits(broken={b"Z": b""}), "ram", "E3041"),
    "refuses memory": (Habits(broken={b"X": b"E0e"}), "ram", "E3041"),
    "refuses registers": (Habits(broken={b"P": b"E01"}), "ram", "E3041"),
    "nonsense for registers": (Habits(broken={b"p": b"zz"}), "ram", "E3041"),
    "writes go nowhere": (Habits(broken={b"X": b"OK"}), "ram", "E3042"),
    "flash without a memory map": (Habits(broken={b"X": b"OK"}), "flash", "E3042"),
    "erasing fails": (Habits(flash=FLASH, broken={b"vFlashErase": b"E01"}), "flash", "E3041"),
    "writing flash fails": (Habits(flash=FLASH, broken={b"vFlashWrite": b"E01"}), "flash", "E3041"),
    "flash is not done": (Habits(flash=FLASH, broken={b"vFlashDone": b"E02"}), "flash", "E3041"),
    "writes outside flash": (Habits(flash=FLASH, broken={b"vFlashWrite": b"E.memtype"}), "flash", "E3041"),
    "a memory map that is none": (
        Habits(flash=FLASH, broken={b"qXfer:memory-map": b"l<memory"}),
        "flash",
        "E3041",
    ),
    "a memory map that is refused": (Habits(flash=FLASH, broken={b"qXfer:memory-map": b"E00"}), "flash", "E3041"),
    "another image": (Habits(), "none", "E3043"),
    "stops that are none": (Habits(broken={b"c": b"OK"}), "ram", "E3041"),
    "a program that exited": (Habits(broken={b"c": b"W00"}), "ram", "E3041"),
    "stops elsewhere": (Habits(broken={b"c": b"T05"}), "ram", "E4021"),
}


@pytest.mark.qemu
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_servers_have_codes(fault: str, tmp_path: Path) -> None:
    habits, load, code = FAULTS[fault]
    with behind(habits, tmp_path, load=load) as (_, project), pytest.raises(AotError) as error:
        run(project, SMALL.inputs)
    assert error.value.problems[0].code == code, str(error.value)


@pytest.mark.qemu
def test_a_server_that_hangs_up_while_flash_is_written(tmp_path: Path) -> None:
    habits = Habits(flash=FLASH, packet_size=256, close_on=b"vFlashWrite")
    with behind(habits, tmp_path, load="flash") as (proxy, project), pytest.raises(ToolchainError, match="E3041"):
        run(project, SMALL.inputs)
    assert proxy.seen[-1].startswith(b"vFlashWrite")
    assert b"vFlashDone" not in proxy.seen


@pytest.mark.qemu
def test_monitor_commands(tmp_path: Path) -> None:
    """They are sent before the image, in their order; one that is refused ends the run with what the server printed."""
    words = ("reset halt", "arm semihosting disable")
    habits = Habits(console=True, broken={b"qRcmd": b"OK", b"c": b"W00"})  # ends where the program would begin
    with behind(habits, tmp_path / "good", reset=words) as (proxy, project), pytest.raises(ToolchainError, match="E3041"):
        run(project, SMALL.inputs)
    writes = [i for i, p in enumerate(proxy.seen) if p.startswith((b"X", b"M"))]
    assert max(i for i, p in enumerate(proxy.seen) if p.startswith(b"qRcmd")) < min(writes)
    sent = [bytes.fromhex(p.partition(b",")[2].decode()).decode() for p in proxy.seen if p.startswith(b"qRcmd,")]
    assert tuple(sent) == words
    refused = Habits(broken={b"qRcmd": b"E01"})
    with behind(refused, tmp_path / "bad", reset=words) as (proxy, project), pytest.raises(ToolchainError) as error:
        run(project, SMALL.inputs)
    assert "refuses `monitor reset halt`" in str(error.value)
    assert not any(p.startswith((b"X", b"M", b"vFlash")) for p in proxy.seen)


@pytest.mark.qemu
def test_a_stop_elsewhere_names_the_function(tmp_path: Path) -> None:
    with behind(Habits(broken={b"c": b"T05"}), tmp_path) as (_, project), pytest.raises(VerificationError) as error:
        run(project, SMALL.inputs)
    assert "in Reset_Handler" in str(error.value)


@pytest.mark.qemu
def test_a_run_without_end_says_where_it_was(tmp_path: Path) -> None:
    board = gdb_board("mps2-an386")
    project = SMALL.project(board, tmp_path, target="cortex-m4")
    spin = tmp_path / "main.c"
    spin.write_text(spin.read_text(encoding="utf-8").replace("add_run(", "aot_spin(), add_run("), encoding="utf-8")
    text = spin.read_text(encoding="utf-8")
    spin.write_text('__attribute__((noinline)) static void aot_spin(void) { for (;;) __asm__ volatile("nop"); }\n' + text)
    with pytest.raises(ToolchainError) as error:
        run(project, SMALL.inputs, timeout=2.0)
    assert error.value.problems[0].code == "E3010"
    assert "in aot_spin" in str(error.value)


@pytest.mark.qemu
def test_cycles_of_a_counter(tmp_path: Path) -> None:
    """SysTick as cycles: with 32 ns an instruction and a clock of 25 MHz, a cycle is 1.25 instructions."""
    board = gdb_board("mps2-an386", counter="systick", hz=25_000_000)
    assert board.gdb is not None
    server = tuple("shift=5,sleep=off" if word.startswith("shift=0") else word for word in board.gdb.server)
    board = replace(board, gdb=replace(board.gdb, server=server), tick=Fraction(1))
    result = run(SMALL.project(board, tmp_path / "cycles", target="cortex-m4"), SMALL.inputs)
    native = run(SMALL.project(load_board("mps2-an386"), tmp_path / "native", target="cortex-m4"), SMALL.inputs)
    assert result.instructions is None
    assert result.cycles is not None
    assert native.instructions is not None
    assert abs(result.cycles - 0.8 * native.instructions) < 20


@pytest.mark.qemu
def test_a_counter_that_stands_still(tmp_path: Path) -> None:
    board = replace(gdb_board("mps2-an386", counter="dwt"), tick=Fraction(1))
    with pytest.raises(UsageError, match=r"E5024.*no \[cycles\] for an emulator"):
        run(SMALL.project(board, tmp_path, target="cortex-m4"), SMALL.inputs)


@pytest.mark.slow
def test_no_server() -> None:
    board = replace(gdb_board("mps2-an386"), gdb=replace(LINK, connect=f"127.0.0.1:{free_port()}"))
    from aot.micro.run.gdb import connected

    assert board.gdb is not None
    with pytest.raises(ToolchainError, match=r"E3040.*no GDB server at"), connected("b", board.gdb):
        pass


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("sh", "-c", "echo Error: unable to find a matching CMSIS-DAP device; exit 1"), "connect the board by USB"),
        (("sh", "-c", "exit 3"), "code 3: it printed nothing"),
        (("no-such-server-anywhere",), "cannot be started"),
    ],
)
def test_servers_that_end(command: tuple[str, ...], said: str) -> None:
    from aot.micro.run.gdb import connected

    with pytest.raises(ToolchainError, match="E3040") as error, connected("b", replace(LINK, server=command)):
        pass
    assert said in str(error.value)


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("program", "words", "said"),
    [
        (
            "openocd",
            ("-f", "interface/cmsis-dap.cfg", "-f", "target/nrf52.cfg", "-c", "gdb_port {port}"),
            "connect the board by USB",
        ),
        ("openocd", ("-f", "board/no-such-board.cfg", "-c", "gdb_port {port}"), "use the server's own name for the board"),
        ("pyocd", ("gdbserver", "--target", "nrf52840", "--no-wait", "--port", "{port}"), "E3040"),
    ],
)
def test_real_servers_without_a_probe(program: str, words: tuple[str, ...], said: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    from aot.micro.run.gdb import connected

    with pytest.raises(ToolchainError, match="E3040") as error, connected("b", replace(LINK, server=(program, *words))):
        pass
    assert said in str(error.value)


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("pyocd", "gdbserver", "--target", "nrf52840", "--port", "{port}"), "connect the board by USB"),
        (
            ("openocd", "-c", "adapter driver dummy", "-c", "jtag newtap a tap -irlen 4", "-c", "target create a.cpu testee "
             "-chain-position a.tap", "-c", "gdb_port {port}"),
            "Error: Trying to use configured scan chain anyway",
        ),
    ],
    ids=["pyocd", "openocd"],
)  # fmt: skip
def test_real_servers_that_stay_are_ended(command: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They run, and wait for a board: the tool tells what they print, and leaves no process behind."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    from aot.micro.run import gdb

    started: list[subprocess.Popen[bytes]] = []
    start = gdb._start

    def noted(*words: Any) -> subprocess.Popen[bytes]:
        process = start(*words)
        assert process is not None
        started.append(process)
        return process

    monkeypatch.setattr(gdb, "_start", noted)
    monkeypatch.setattr(gdb, "START_SECONDS", 6.0)
    with pytest.raises(ToolchainError, match="E3040") as error, gdb.connected("b", replace(LINK, server=command)):
        pass
    assert said in str(error.value)
    assert started[0].returncode is not None


def test_board_files() -> None:
    tables = (
        '[gdb]\nserver = ["openocd", "-f", "board/st_nucleo_f4.cfg", "-c", "gdb_port {port}"]\nreset = ["reset halt"]\n'
        '[clock]\nhz = 16000000\ninit = [[0x40023c00, 0x5], [0x40023800, 0x1, 0x1]]\n[cycles]\ncounter = "dwt"\n'
    )
    text = re.sub(r"\[systick\]\n[^\n]*\n", "", text_of("mps2-an386", tables))
    board = parse_board(text, "b/board.toml")
    assert board.gdb is not None
    assert (board.gdb.hz, board.gdb.counter, board.gdb.load, board.counts_cycles) == (16_000_000, "dwt", "flash", True)
    assert board.gdb.init[1].mask == 1
    wrong = {
        'reset = ["reset halt"]': "reset = 1",
        "hz = 16000000": "hz = -1",
        'counter = "dwt"': 'counter = "stopwatch"',
        "[0x40023c00, 0x5]": "[0x40023c01, 0x5]",
        '"gdb_port {port}"': '"gdb_port 3333"',
        '[cycles]\ncounter = "dwt"\n': "",
    }
    for old, new in wrong.items():
        assert old in text
        with pytest.raises(UsageError, match="E5021"):
            parse_board(text.replace(old, new), "b/board.toml")


def test_memory_maps_of_any_kind() -> None:
    assert parse_memory_map(b"<memory-map>") == []
    assert parse_memory_map(b"") == []
    assert parse_memory_map(b'<memory-map><memory type="flash" start="x" length="1"/></memory-map>') == []
    assert parse_memory_map(b'<!DOCTYPE a [<!ENTITY b "c">]><memory-map/>') == []
    (region,) = parse_memory_map(
        b'<memory-map><memory type="flash" start="0x8000000" length="0x1000"><property name="blocksize">0x400</property>'
        b"</memory></memory-map>"
    )
    assert (region.kind, region.start, region.size, region.block) == ("flash", 0x8000000, 0x1000, 0x400)


def test_run_lengths_and_escapes() -> None:
    assert rsp._expanded(b"0* ") == b"0000"
    assert rsp._expanded(b"}\x03a") == b"#a"
    assert rsp._expanded(b"*") == b"*"
