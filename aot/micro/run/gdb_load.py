"""Bring an image into a board's memory by its GDB server, or see that it is there."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from elftools.elf.elffile import ELFFile

from aot.errors import Problem, ToolchainError
from aot.micro.board import Board
from aot.micro.run.rsp import FLASH_SECONDS, Client, Region, fitting
from aot.system.process import TOOL_SECONDS, run_program

Segment = tuple[int, bytes]
"""Address and content."""

PROBE = 256
"""Bytes of each segment's start and end that are compared first: another image differs there nearly always."""


def bring_image(client: Client, board: Board, elf: Path) -> None:
    """Load the image unless it is there; then compare (E3042: it cannot be loaded, E3043: another one is there)."""
    link = board.gdb
    assert link is not None
    parts = segments(elf)
    if link.load == "none":
        if link.command:
            _run_command(board, link.command, elf, seconds=client.end - time.monotonic())
        if not is_there(client, parts):
            how = "load_command left" if link.command else "the board holds"
            raise ToolchainError(Problem("E3043", f"{board.name}: {how} another image than {elf.name}"))
        return
    if link.load == "flash" and is_there(client, parts):
        return
    regions = client.memory_map() if link.load == "flash" else []
    flash = [p for p in parts if _flash_of(p, regions) is not None]
    _write_flash(client, flash, regions)
    for address, data in parts:
        if (address, data) not in flash:
            client.write(address, data)
    if not is_there(client, parts):
        hint = 'the server has no memory map, so flash cannot be written: load = "none" and load_command' if not regions else ""
        message = f"{board.name}: {elf.name} was written, but reads back otherwise{f' ({hint})' if hint else ''}"
        raise ToolchainError(Problem("E3042", message))


def segments(elf: Path) -> list[Segment]:
    """What the file wants in memory, by load address."""
    with elf.open("rb") as stream:
        found = [(s["p_paddr"], s.data()) for s in ELFFile(stream).iter_segments() if s["p_type"] == "PT_LOAD" and s["p_filesz"]]
    return sorted(found)


def is_there(client: Client, parts: Sequence[Segment]) -> bool:
    """Whether the memory holds the segments, byte by byte; their ends first, as most other images differ there."""
    for address, data in parts:
        head, tail = data[:PROBE], data[-PROBE:]
        if client.read(address, len(head)) != head or client.read(address + len(data) - len(tail), len(tail)) != tail:
            return False
    return all(client.read(address, len(data)) == data for address, data in parts)


def _flash_of(part: Segment, regions: Sequence[Region]) -> Region | None:
    address, data = part
    return next(
        (r for r in regions if r.kind == "flash" and r.start <= address and address + len(data) <= r.start + r.size), None
    )


def _write_flash(client: Client, parts: Sequence[Segment], regions: Sequence[Region]) -> None:
    """Erase the blocks that the segments touch, each once, then write and finish."""
    if not parts:
        return
    blocks: set[tuple[int, int]] = set()
    for address, data in parts:
        region = _flash_of((address, data), regions)
        assert region is not None
        block = region.block or region.size
        first = (address - region.start) // block
        last = (address + len(data) - 1 - region.start) // block
        blocks |= {(region.start + n * block, block) for n in range(first, last + 1)}
    for start, size in sorted(blocks):
        client.must(b"vFlashErase:%x,%x" % (start, size), f"erase flash at 0x{start:08x}", seconds=FLASH_SECONDS)
    for address, data in parts:
        done = 0
        while done < len(data):
            part = data[done : done + fitting(data[done:], client.packet_size - 32)]
            where = address + done
            client.must(b"vFlashWrite:%x:" % where + part, f"write flash at 0x{where:08x}", seconds=FLASH_SECONDS)
            done += len(part)
    client.must(b"vFlashDone", "finish writing flash", seconds=FLASH_SECONDS)


def _run_command(board: Board, command: Sequence[str], elf: Path, *, seconds: float) -> None:
    words = [word.replace("{elf}", str(elf.resolve())) for word in command]
    done = run_program(words, timeout=min(max(seconds, 0.0), TOOL_SECONDS))
    if done.code:
        lines = (done.err or done.out).strip().splitlines()
        raise ToolchainError(Problem("E3042", f"{board.name}: {words[0]} ended with code {done.code}: {' / '.join(lines[-3:])}"))
