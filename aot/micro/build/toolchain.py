"""The programs that aot starts: compilers, binutils, the emulator, from PATH or AOT_<NAME>."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from aot.errors import Problem, ToolchainError
from aot.support.dataclass import dataclass
from aot.system.process import Finished, run_program, version_of

_HOW = {
    "arm-none-eabi-gcc": "apt-get install gcc-arm-none-eabi libnewlib-arm-none-eabi",
    "arm-none-eabi-objdump": "apt-get install binutils-arm-none-eabi",
    "gcc": "apt-get install gcc",
    "clang": "apt-get install clang",
    "qemu-system-arm": "apt-get install qemu-system-arm",
}


@dataclass(frozen=True, slots=True)
class Tool:
    """A program with its absolute path and the first line of its --version."""

    name: str
    path: str
    version: str


def known_tools() -> list[str]:
    """The names that find_tool knows, in the order of `aot doctor`."""
    return list(_HOW)


def how_to_get(name: str) -> str:
    """The command that installs the program on Debian."""
    return _HOW[name]


def find_tool(name: str) -> Tool:
    """The program `name`; the variable AOT_ARM_NONE_EABI_GCC (and so on) overrides PATH.

    Raises ToolchainError E3001 with the command that installs it, E3004 and E3005 if it exists but `--version` fails.
    """
    override = os.environ.get("AOT_" + re.sub(r"\W", "_", name).upper())
    path = shutil.which(override or name)
    if path is None and override and os.path.exists(override):
        raise ToolchainError(Problem("E3004", f"{name} at {override} cannot be started: it is not executable"))
    if path is None:
        place = f"at {override}" if override else "on PATH"
        raise ToolchainError(Problem("E3001", f"{name} is not {place}; on Debian: {_HOW.get(name, 'install it')}"))
    return Tool(name, path, version_of(path))


def short_version(tool: Tool) -> str:
    """`arm-none-eabi-gcc 12.2.1`: name and number, without the packager's remarks in parentheses."""
    number = re.search(r"\d+(\.\d+)+", re.sub(r"\(.*?\)", "", tool.version))
    return f"{tool.name} {number.group() if number else tool.version}"


def have_tool(name: str) -> bool:
    """Whether find_tool would succeed."""
    try:
        find_tool(name)
    except ToolchainError:
        return False
    return True


def run_tool(command: Sequence[str], cwd: Path) -> Finished:
    """Run a compiler or a binutil in `cwd` with a neutral locale; the caller checks the result (E3004, E3005)."""
    return run_program(command, cwd=cwd, variables={"LC_ALL": "C", "SOURCE_DATE_EPOCH": "0"})
