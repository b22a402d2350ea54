"""Building an application with Zephyr's CMake: whether the board has room for it, and what a failed build has to say."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from aot.errors import Problem, TargetError, ToolchainError, UsageError
from aot.micro.draft.devicetree import chosen_sizes
from aot.support.text import printable
from aot.system.process import run_program

STACK = 16384
"""bytes of the main thread's stack in our applications"""
_MOST_LINES = 12
_LINE = 300
_TELLING = re.compile(
    r"\berror\b|overflowed by|will not fit|undefined reference|No board named|Invalid BOARD|FATAL|No module named|not found"
    r"|^\w+(?:Error|Exception): |^warning: |valid board targets",
    re.I,
)
_NINJA = re.compile(
    r"\[\d+/\d+\]|ninja: |FAILED: |: && |(?:/\S*/)?\S*(?:gcc|g\+\+|ccache|cmake|python3?)(?:\.exe)? \S.*\s-|cd \S+ && "
)
"""Which file ninja works on, and whole commands: they may have "error" in a file's name or an option, and say nothing."""
_WRAPPED = re.compile(r"^(?:warning|error): |valid board targets", re.I)
"""What Kconfig says is wrapped without an indent, and the targets of a board are a list: both end at an empty line."""
_OVERFLOW = re.compile(r"region [`'](\w+)' overflowed by (\d+) bytes")


def build_step(command: Sequence[str], folder: Path) -> None:
    """One step of a build; E2012 where the image does not fit, else E3021 with the lines that say why it failed."""
    done = run_program(command, cwd=folder, timeout=1800)
    if done.code == 0:
        return
    text = f"{done.err}\n{done.out}"
    over = {region: int(count) for region, count in _OVERFLOW.findall(text)}
    if over:
        raise TargetError(
            *(
                Problem("E2012", f"region {r} of the board overflows by {n:,} bytes with Zephyr's own code")
                for r, n in over.items()
            )
        )
    raise ToolchainError(Problem("E3021", f"{command[0]} failed:\n" + "\n".join(telling_lines(text))))


def telling_lines(text: str) -> list[str]:
    """The lines of a failed build that say why, with what belongs to them below; the last ones where none does."""
    lines = [printable(line.rstrip(), limit=_LINE) for line in text.splitlines() if not _NINJA.match(line)]
    kept: list[str] = []
    belongs, wrapped = False, False
    for line in lines:
        if _TELLING.search(line) is not None:
            belongs, wrapped = True, _WRAPPED.search(line) is not None
        elif wrapped:
            belongs = belongs and bool(line)
        else:
            belongs = belongs and (not line or line.startswith((" ", "\t")))
        if belongs and line and line not in kept:
            kept.append(line)
    return kept[:_MOST_LINES] or [line for line in lines if line][-_MOST_LINES:]


def check_room(board: str, build: Path, metadata: Mapping[str, Any], *, data: int = 0) -> None:
    """Raise TargetError E2010, E2011 where a board that was configured cannot hold the model, whatever its code takes.

    `build` has Zephyr's devicetree and configuration; `data` are bytes of test data in flash.
    """
    flash, ram = _room(build / "zephyr")
    state = int(metadata.get("state", {}).get("size", 0))
    workspace, constants = int(metadata["workspace"]["size"]), int(metadata["constants"]["size"])
    problems = []
    if ram is not None and workspace + state + STACK > ram:
        parts = f"workspace {workspace:,}" + (f", state {state:,}" if state else "") + f", stack {STACK:,}"
        problems.append(Problem("E2010", f"{board} has {ram:,} bytes of RAM (zephyr,sram); the model needs more: {parts}"))
    if flash is not None and constants + data > flash:
        fewer = " (fewer sets would help: --random 1)" if constants <= flash else ""
        parts = f"constants {constants:,}" + (f", test data {data:,}{fewer}" if data else "")
        problems.append(Problem("E2011", f"{board} has {flash:,} bytes of flash (zephyr,flash); the model needs more: {parts}"))
    if problems:
        raise TargetError(*problems)


def _room(folder: Path) -> tuple[int | None, int | None]:
    """Bytes of flash and RAM, by the devicetree, or else by the configuration; None: neither says."""
    flash, ram = None, None
    dts, config = folder / "zephyr.dts", folder / ".config"
    if dts.is_file():
        with suppress(UsageError):  # a devicetree that Zephyr made something of is for Zephyr to complain of
            flash, ram = chosen_sizes(dts.read_text(encoding="utf-8", errors="replace"))
    text = config.read_text(encoding="utf-8", errors="replace") if config.is_file() else ""
    kib = {k: int(v) for k, v in re.findall(r"^CONFIG_(FLASH|SRAM)_SIZE=([0-9]{1,7})$", text, re.MULTILINE)}
    flash = flash if flash is not None else 1024 * kib.get("FLASH", 0) or None
    ram = ram if ram is not None else 1024 * kib.get("SRAM", 0) or None
    return flash, ram
