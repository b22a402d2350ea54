"""Compiling generated C in tests, at the warning level that we promise (DESIGN: generated C is warning-free)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from aot.system.files import data_folder

WARNINGS = (  # noqa: SIM905
    "-std=c99 -pedantic -Wall -Wextra -Wconversion -Wsign-conversion -Wshadow -Wundef -Wvla -Wcast-align=strict "
    "-Wdouble-promotion -Wstrict-prototypes -Wmissing-prototypes -Werror"
).split()  # fmt: skip
INCLUDE = f"-I{data_folder('crt') / 'include'}"
COMPILERS = {
    "gcc": ["gcc"],
    "clang": ["clang"],
    "arm-m4": ["arm-none-eabi-gcc", "-mcpu=cortex-m4", "-mthumb"],
    "arm-m0": ["arm-none-eabi-gcc", "-mcpu=cortex-m0", "-mthumb"],
}


def command(compiler: str) -> list[str]:
    """The compiler's name and core; skips the test where it is not installed."""
    words = COMPILERS[compiler]
    if shutil.which(words[0]) is None:
        pytest.skip(f"{words[0]} is not installed")
    return words


def compile_all(compiler: str, files: list[Path], *flags: str, level: str = "-O2") -> None:
    """Compile each C file to an object under the full warning set; fail with the compiler's words."""
    words = command(compiler)
    warnings = [w.replace("-Wcast-align=strict", "-Wcast-align") for w in WARNINGS] if compiler == "clang" else WARNINGS
    for file in files:
        args = [*words, *warnings, level, INCLUDE, f"-I{file.parent}", *flags, "-c", str(file), "-o", f"{file}.{compiler}.o"]
        done = subprocess.run(args, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{compiler}: {done.stderr[:4000]}"


def shared_library(files: list[Path], output: Path, *flags: str) -> Path:
    """Link C files to a shared library of this machine."""
    args = [*command("gcc"), "-std=c99", "-O1", "-fPIC", "-shared", "-ffp-contract=off", INCLUDE, f"-I{files[0].parent}", *flags]
    done = subprocess.run([*args, *map(str, files), "-lm", "-o", str(output)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]
    return output
