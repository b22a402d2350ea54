"""A program built as a user might build it: any compiler, -O level, frame pointer and float ABI."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from aot.micro.build.project import _LIBRARIES, WARNINGS, Project
from aot.micro.build.toolchain import find_tool

LEVELS = ("-O0", "-Og", "-O1", "-O2", "-Os", "-O3", "-O2 -flto")
FRAMES = ("", "-fno-omit-frame-pointer")
ABIS = {
    "hard": "-mfloat-abi=hard -mfpu=fpv4-sp-d16",
    "softfp": "-mfloat-abi=softfp -mfpu=fpv4-sp-d16",
    "soft": "-mfloat-abi=soft",
}
COMPILERS = ("gcc", "clang")
MODELS = Path(__file__).resolve().parents[2] / "models"
CORE = ("-mcpu=cortex-m4", "-mthumb")


@dataclass(frozen=True, slots=True)
class Flags:
    """How a model's sources are compiled; what runs it is compiled with GCC at -Os and the same float ABI."""

    compiler: str
    level: str
    frame: str
    abi: str

    def __str__(self) -> str:
        return " ".join(filter(None, (self.compiler, self.level, self.frame, self.abi)))

    @property
    def core(self) -> list[str]:
        return [*CORE, *ABIS[self.abi].split()]

    def command(self) -> list[str]:
        """The compiler and its flags."""
        own = [*self.level.split(), *self.frame.split(), *self.core]
        if self.compiler == "gcc":
            return [find_tool("arm-none-eabi-gcc").path, "-std=c99", "-pedantic", *WARNINGS, *own]
        warnings = [w.replace("=strict", "") for w in WARNINGS]
        # enumerations as small as GCC's, or the linker warns that the harness has others
        return [clang(), "--target=arm-none-eabi", "-std=c99", "-pedantic", "-fshort-enums", *warnings, *own]


ALL = [Flags(c, o, f, a) for c in COMPILERS for o in LEVELS for f in FRAMES for a in ABIS]


def clang() -> str:
    """The newest Clang; skips the test where there is none."""
    versions = [f"clang-{n}" for n in range(22, 12, -1)]
    found = next(filter(None, map(shutil.which, ("clang", *versions))), None)
    if found is None:
        pytest.skip("needs clang: apt-get install clang")
    return found


def gold_plugin() -> Path:
    """What lets GNU ld read Clang's -flto objects; skips the test where it is missing."""
    path = Path(clang()).resolve().parents[1] / "lib" / "LLVMgold.so"
    if not path.is_file():
        pytest.skip("needs LLVMgold.so: apt-get install llvm-linker-tools")
    return path


@dataclass(frozen=True, slots=True)
class Flagged(Project):
    """A project whose model is compiled with other flags."""

    how: Flags = ALL[0]

    def image(self, mode: str = "measure") -> Path:
        """The linked program, made again."""
        paths = [str(self.compiled(n).relative_to(self.folder)) for n in self.files if n.endswith(".c")]
        elf = self.folder / "flags.elf"
        link = [find_tool("arm-none-eabi-gcc").path, *self.how.core, "-nostdlib", "-Wl,--gc-sections", "-Wl,--build-id=none"]
        if "-flto" in self.how.level:
            plugin = f"-Wl,-plugin,{gold_plugin()},-plugin-opt=mcpu=cortex-m4" if self.how.compiler == "clang" else ""
            link += [*self.how.level.replace("-flto", "-flto=auto").split(), *([plugin] if plugin else [])]
        self._run([*link, "-Tboard.ld", *paths, *_LIBRARIES, "-o", elf.name])
        return elf

    def compiled(self, name: str) -> Path:
        """The object file of a source."""
        target = self.folder / "flags" / f"{Path(name).stem}.o"
        target.parent.mkdir(exist_ok=True)
        if name in self.artifact.files:
            command = [*self.how.command(), "-ffreestanding", "-ffunction-sections", "-fdata-sections"]
        else:
            command = [find_tool("arm-none-eabi-gcc").path, *self.flags(name), *self.how.core]
        self._run([*command, "-I.", "-Icrt/include", "-c", name, "-o", str(target)])
        return target

    def _run(self, command: list[str]) -> None:
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        known = "missing .note.GNU-stack"  # in an object of newlib
        lines = [line for line in done.stderr.splitlines() if re.search("error|warning", line) and known not in line]
        assert done.returncode == 0, f"{self.how}: {lines[:3] or done.stderr[-400:]}"
        assert not lines, f"{self.how}: {lines[:3]}"


def flagged(project: Project, how: Flags) -> Flagged:
    return Flagged(project.artifact, project.board, project.folder, project.places, project.files, how=how)
