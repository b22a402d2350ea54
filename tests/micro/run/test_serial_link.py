"""The conversation over a serial port: with a board that does as it should, and with every fault that one may have."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aot.errors import AotError, UsageError
from aot.micro.run import serial
from aot.micro.run.serial import SerialLink, framed, opened, parse_port, unframed
from aot.testing.serial_board import serial_board

IMAGE = "00112233aabbccdd"
DATA = bytes(range(200))


def talk(fault: str) -> bytes:
    """Patient, but with a board that never says what is waited for."""
    with serial_board(IMAGE, fault) as path, opened(path) as port:
        link = SerialLink(port, "zephyr:desk")
        link.hello(IMAGE, seconds={"silent": 0.3, "garbage": 1.0}.get(fault, 60.0))
        link.reset()
        return link.run([DATA], [len(DATA)], timeout=0.3 if fault == "slow" else 60.0)


@pytest.mark.parametrize("fault", ["", "damaged once"])
def test_bytes_come_back(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when a line is damaged: it is sent again."""
    monkeypatch.setattr(serial, "ANSWER_SECONDS", 60.0)
    assert talk(fault) == bytes(b ^ 255 for b in DATA)


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        ("silent", "E5411", "said nothing for 0.3 s"),
        ("garbage", "E5412", "command not found"),
        ("stale", "E5413", "runs image 0000000000000000, not the image that was built (00112233aabbccdd)"),
        ("slow", "E5414", "did not finish within 0.3 s"),
        ("damaged", "E5415", "after 4 tries"),
        ("crash", "E5416", "ZEPHYR FATAL ERROR"),
        ("status", "E4022", "returned -3"),
    ],
)
def test_faults_have_codes(fault: str, code: str, words: str) -> None:
    with pytest.raises(AotError) as error:
        talk(fault)
    assert [p.code for p in error.value.problems] == [code]
    assert words in str(error.value)


def test_ports_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    wrong = {"/dev/none": "No such file", str(tmp_path / "file"): "not a serial port", "/dev/ttyX:12345": "12345 baud"}
    for port, words in wrong.items():
        with pytest.raises(UsageError, match="E5410") as error, opened(port):
            pass
        assert words in str(error.value)
    ours, theirs = os.openpty()
    with opened(os.ttyname(theirs)) as port:
        os.close(ours)
        with pytest.raises(UsageError, match=r"E5410.*unplugged"):
            SerialLink(port, "desk").hello(IMAGE, seconds=2.0)
    os.close(theirs)


def test_names_of_ports() -> None:
    assert parse_port("/dev/ttyACM0") == ("/dev/ttyACM0", 115200)
    assert parse_port("/dev/ttyACM0:9600") == ("/dev/ttyACM0", 9600)
    assert parse_port("/dev/serial/by-id/usb-a:b") == ("/dev/serial/by-id/usb-a:b", 115200)


def test_frames() -> None:
    assert unframed(framed("i 00 00000000 ff")) == "i 00 00000000 ff"
    for line in ("", "x", "aot-ok 00000000", framed("aot-ok 1")[:-1], "\ufffd" + framed("aot-ok 1")[1:]):
        assert unframed(line) is None
