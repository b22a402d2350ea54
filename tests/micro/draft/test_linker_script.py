"""Memory regions of linker scripts in the ways in which vendors write them."""

from __future__ import annotations

import pytest

from aot.micro.board import Memory
from aot.micro.draft import read_linker_script, value_of

CUBE = """
/* Highest address of the user mode stack */
_estack = ORIGIN(RAM) + LENGTH(RAM); /* end of "RAM" */
MEMORY
{
  CCMSRAM (xrw)      : ORIGIN = 0x10000000, LENGTH = 10K
  RAM (xrw)      : ORIGIN = 0x20000000, LENGTH = 32K
  FLASH (rx)      : ORIGIN = 0x8000000, LENGTH = 128K
}
"""
SDK = """
HEAP_SIZE = DEFINED(__heap_size__) ? __heap_size__ : 0x0400;
FLASH_SIZE = 2 * 1024 * 1024;
MEMORY
{
  m_interrupts          (RX)  : ORIGIN = 0x60002000, LENGTH = 0x00000400
  m_text                (RX)  : ORIGIN = 0x60002400, LENGTH = FLASH_SIZE - 0x2400
  m_data                (RW)  : ORIGIN = 0x20000000, LENGTH = 0x00020000
  m_data2               (RW)  : ORIGIN = ORIGIN(m_data) + 0x200000, LENGTH = 768K
}
"""


def test_cube() -> None:
    assert read_linker_script(CUBE).memory == (
        Memory("CCMSRAM", "rw", 0x10000000, 10240),
        Memory("RAM", "rw", 0x20000000, 32768),
        Memory("FLASH", "rx", 0x08000000, 131072),
    )


def test_symbols_and_other_regions_in_numbers() -> None:
    found = {m.name: m for m in read_linker_script(SDK).memory}
    assert found["M_TEXT"] == Memory("M_TEXT", "rx", 0x60002400, (2 << 20) - 0x2400)
    assert found["M_DATA2"] == Memory("M_DATA2", "rw", 0x20200000, 768 << 10)


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("rom : org = 0, len = 64K", [Memory("ROM", "rx", 0, 65536)]),
        ("SRAM : o = 0x20000000, l = 8k", [Memory("SRAM", "rw", 0x20000000, 8192)]),
        ("RAM (rwx!r) : ORIGIN = 0x20000000, LENGTH = 8K", [Memory("RAM", "rw", 0x20000000, 8192)]),
        ("1st.bank (rx) : ORIGIN = 0x0, LENGTH = 1M", [Memory("MEMORY_1ST_BANK", "rx", 0, 1 << 20)]),
        ("A (rx) : ORIGIN = 0, LENGTH = 1K  B (rx) : ORIGIN = 512, LENGTH = 1K", None),
        ("A (rx) : ORIGIN = 0, LENGTH = 1K\nB (rx) : ORIGIN = 512, LENGTH = 1K", [Memory("A", "rx", 0, 1024)]),
        ("A (rx) : ORIGIN = 0, LENGTH = 0", []),
        ("A (rx) : ORIGIN = elsewhere, LENGTH = 1K", []),
        ("A (rx) : ORIGIN = 0xffffffff, LENGTH = 1K", []),
        ("IDT_LIST (wx) : ORIGIN = 0x40000000, LENGTH = 2K", []),
    ],
)
def test_lines(line: str, wanted: list[Memory] | None) -> None:
    found = list(read_linker_script(f"MEMORY {{ {line} }}").memory)
    if wanted is not None:
        assert found == wanted


def test_no_memory_command() -> None:
    assert read_linker_script("INCLUDE memory.x\nSECTIONS { }").memory == ()
    assert read_linker_script("").memory == ()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0x20000000 + 4", 0x20000004),
        ("(1 << 20) - 2K", (1 << 20) - 2048),
        ("1024UL*64", 65536),
        ("8/2", 4),
        ("DT_SIZE_K(64)", 65536),
        ("ORIGIN(RAM)", 7),
        ("-1", -1),
        ("1/0", None),
        ("1 << 99", None),
        ("__import__('os')", None),
        ("a", None),
        ("", None),
        ("(" * 5000, None),
    ],
)
def test_numbers(text: str, value: int | None) -> None:
    assert value_of(text, {"ORIGIN_RAM": 7}) == value
