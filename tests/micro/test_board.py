from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from aot.errors import UsageError
from aot.micro.board import board_names, emulated_names, load_board, parse_board
from aot.system.files import data_folder

EIGHT = ["host", "microbit", "mps2-an385", "mps2-an385-v6m", "mps2-an386", "mps2-an500", "mps2-an505", "mps3-an547"]
DESK = [
    "alif-e8-hp", "b-l475e-iot01a", "mimxrt1060-evk", "nano33ble", "nrf52840dk", "nrf5340dk", "nucleo-f446re", "nucleo-h743zi2",
    "nucleo-l4r5zi", "nucleo-u575zi-q", "rpi-pico", "rpi-pico2", "stm32f746g-disco",
]  # fmt: skip


def test_every_folder_is_a_board() -> None:
    assert board_names() == sorted(EIGHT + DESK)
    assert emulated_names() == EIGHT[1:]
    for name in board_names():
        board = load_board(name)
        assert board.name == name
        assert (board.tick is None) == board.is_host


def test_values_of_one_board() -> None:
    board = load_board("mps3-an547")
    assert (board.cpu, board.machine, board.tick) == ("cortex-m55", "mps3-an547", Fraction(125, 4))
    assert board.region(board.data).origin == 0x20000000
    assert board.workspace[0] == board.data


def test_unknown_board_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"E5020 there is no board 'nucleo'.*mps2-an386"):
        load_board("nucleo")


def test_a_board_may_live_in_any_folder(tmp_path) -> None:
    text = _m4()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "board.toml").write_text(text.replace('name = "mps2-an386"', 'name = "mine"'))
    assert load_board(str(tmp_path / "mine")).name == "mine"
    assert load_board("mine", tmp_path).cpu == "cortex-m4"
    with pytest.raises(UsageError, match="E5020"):
        load_board("mine")


def _m4() -> str:
    return (data_folder("boards") / "mps2-an386" / "board.toml").read_text()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('cpu = "cortex-m4"\nflags', "flags", "cpu is missing"),
        ('kind = "qemu"', 'kind = "fpga"', 'kind must be "host", "qemu" or "gdb"'),
        ("[40, 1]", "[40]", "two positive integers"),
        ("[40, 1]", "[42, 1]", "that 7 does not divide"),
        ("[40, 1]", '"40"', "instructions_per_tick must be list, not str"),
        ('data = "SSRAM23"', 'data = "SSRAM1"', "data: SSRAM1 is not writable"),
        ('data = "SSRAM23"', 'data = "DRAM"', "no .*memory.* has the name 'DRAM'"),
        ("origin = 0x21000000", "origin = 0x20000000", "PSRAM overlaps another region"),
        ("stack = 32768", "stack = 12", "positive multiple of 8"),
        ("stack = 32768", "stak = 32768", "unknown key 'stak'"),
        ("timeout_seconds = 120", "timeout_seconds = true", "timeout_seconds must be float, not bool"),
        ("timeout_seconds = 120", "timeout_seconds = 0", "timeout_seconds must be positive"),
        ('"-mthumb"', "1", "flags must be a list of strings"),
        ("[run]", "[run", "not TOML"),
    ],
)
def test_mistakes_are_named(old: str, new: str, message: str) -> None:
    text = _m4()
    assert old in text
    with pytest.raises(UsageError, match=message) as caught:
        parse_board(text.replace(old, new, 1), "b/board.toml")
    assert {p.code for p in caught.value.problems} == {"E5021"}


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "board.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match=r"E5021 b/board\.toml.*cannot be read as text"):
        load_board(str(tmp_path / "b"))


def test_all_mistakes_at_once() -> None:
    text = _m4().replace("stack = 32768", "stack = 12").replace("[40, 1]", "[0, 1]").replace('access = "rx"', 'access = "x"')
    with pytest.raises(UsageError) as caught:
        parse_board(text, "b/board.toml")
    assert len(caught.value.problems) == 3


def test_folder_and_name_must_agree(tmp_path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "board.toml").write_text(_m4())
    with pytest.raises(UsageError, match="name is 'mps2-an386', but the folder is 'other'"):
        load_board("other", tmp_path)


def test_serial_port() -> None:
    text = _m4()
    port = parse_board(text, "board.toml").uart
    assert port is not None
    assert (port.kind, port.base, port.clock) == ("cmsdk", 0x40004000, 25_000_000)
    assert load_board("microbit").uart is None
    with pytest.raises(UsageError, match="kind must be one of cmsdk"):
        parse_board(text.replace('"cmsdk"', '"pl011"'), "board.toml")
    with pytest.raises(UsageError, match="clock is missing"):
        parse_board(text.replace("clock = 25000000", ""), "board.toml")


def test_output_pin() -> None:
    text = _m4()
    pin = parse_board(text, "board.toml").gpio
    assert pin is not None
    assert (pin.kind, pin.base, pin.pin) == ("cmsdk", 0x40010000, 0)
    assert load_board("microbit").gpio is None
    with pytest.raises(UsageError, match="pin must be 0 to 7"):
        parse_board(text.replace("pin = 0", "pin = 8"), "board.toml")


def test_a_board_on_a_desk_as_an_emulated_machine() -> None:
    board = load_board("qemu:nucleo-f446re")
    assert (board.name, board.kind, board.machine, board.tick) == (
        "nucleo-f446re-qemu",
        "qemu",
        "netduinoplus2",
        Fraction(125, 21),
    )
    assert board.memory == load_board("nucleo-f446re").memory
    with pytest.raises(UsageError, match=r"E5021.*no \[qemu\]"):
        load_board("qemu:rpi-pico")
    with pytest.raises(UsageError, match="E5020"):
        load_board("qemu:nucleo")
    text = (data_folder("boards") / "nucleo-f446re" / "board.toml").read_text()
    with pytest.raises(UsageError, match="instructions_per_tick is missing"):
        parse_board(text.replace("instructions_per_tick = [125, 21]", ""), "b/board.toml")
