"""`aot new --kind make` and `--kind cmake`: firmware without an operating system, built by GNU make or CMake."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aot.errors import Problem, UsageError
from aot.micro.board import EMULATED, Board
from aot.micro.build import project as build
from aot.micro.build.pools import pool_regions
from aot.micro.new.registry import (
    ProjectFiles,
    Spec,
    Text,
    common_values,
    integer_only,
    model_files,
    places_of,
    project_kind,
    project_name,
    render,
    runtime_headers,
    runtime_source,
)

_BOARD_SOURCES = ("counter.c", "memory.c", "semihosting.c", "startup.c", "systick.c")
_HOST_SOURCES = ("hosted.c",)
_RUNTIME = "aot/src/"


@project_kind("make")
def make_project(spec: Spec) -> ProjectFiles:
    """Makefile and src/main.c are the user's; aot/project.mk knows sources and flags."""
    files = bare_files(spec)
    values = bare_values(spec, files)
    files["aot/project.mk"] = render("project.mk.j2", **values)
    files["README.md"] = render("README.bare.md.j2", **values)
    return ProjectFiles(files, {"Makefile": render("Makefile.j2", **values), "src/main.c": render("main.c.j2", **values)})


@project_kind("cmake")
def cmake_project(spec: Spec) -> ProjectFiles:
    """CMakeLists.txt and src/main.c are the user's; aot/*.cmake know sources, flags and the compiler."""
    files = bare_files(spec)
    values = bare_values(spec, files)
    files["aot/project.cmake"] = render("project.cmake.j2", **values)
    files["README.md"] = render("README.bare.md.j2", **values)
    if not spec.board.is_host:
        files["aot/toolchain.cmake"] = render("toolchain.cmake.j2", **values)
    once: dict[str, Text] = {"CMakeLists.txt": render("CMakeLists.txt.j2", **values), "src/main.c": render("main.c.j2", **values)}
    return ProjectFiles(files, once)


def bare_files(spec: Spec) -> dict[str, Text]:
    """Models, runtime and linker script below aot/."""
    files: dict[str, Text] = {}
    for name, text in model_files(spec, sources="aot/models/", headers="aot/models/").items():
        files[name] = text
    for name in _HOST_SOURCES if spec.board.is_host else _BOARD_SOURCES:
        files[_RUNTIME + name] = runtime_source(name)
    for name, text in runtime_headers(files, more=("systick.h", "semihosting.h")).items():
        files[f"aot/include/{name}"] = text
    if not spec.board.is_host:
        rows = [row for part in spec.parts for row in pool_regions(spec.board, part.artifact.metadata)]
        pools = list({row["name"]: row for row in rows}.values())
        files["aot/board.ld"] = build.linker_script(spec.board, places_of(spec), pools)
    return files


def bare_values(spec: Spec, files: dict[str, Text]) -> dict[str, Any]:
    """What the templates of bare-metal projects use beside the common values."""
    sources = sorted(n for n in files if n.endswith(".c"))
    fast = [n for n in sources if n.endswith("_kernels.c") or n == _RUNTIME + "memory.c"]
    return {
        **common_values(spec),
        "project": project_name(spec.title),
        "small": [n for n in sources if n not in fast],
        "fast": fast,
        "includes": ["aot/include", "aot/models"],
        "own_sources": ["src/main.c"],
        "flags": list(spec.board.flags),
        "warnings": [w for w in build.WARNINGS if w != "-Werror"],
        "defines": _defines(spec.board),
        "libraries": _libraries(spec),
        "qemu": qemu_arguments(spec.board, SEMIHOSTING),
    }


def _defines(board: Board) -> list[str]:
    """Instructions per tick of the timer; without a timer the host's counter reads 0."""
    tick = board.tick
    return [f"AOT_TICK_NUM={tick.numerator}u", f"AOT_TICK_DEN={tick.denominator}u"] if tick is not None else ["AOT_TICK_DEN=1u"]


def _libraries(spec: Spec) -> list[str]:
    if spec.board.is_host:
        return ["-lm"]
    return ["-lgcc"] if integer_only(spec) else ["-lm", "-lc_nano", "-lgcc"]


SEMIHOSTING = (
    "-chardev", "stdio,id=console", "-semihosting-config", "enable=on,target=native,chardev=console", "-serial", "none",
)  # fmt: skip
SERIAL = ("-semihosting-config", "enable=on,target=native", "-serial", "stdio")
"""What QEMU's terminal shows: the console of semihosting, or the board's serial port."""


def qemu_arguments(board: Board, console: Sequence[str]) -> list[str]:
    """All but the image; with -icount shift=0 one instruction takes one nanosecond."""
    if board.is_host:
        return []
    if board.gdb is not None:
        message = f"{board.name} is reached by a GDB server, and a project of this kind runs in an emulator; see aot build"
        twin = f"; with {EMULATED} in front of the board it is one for QEMU's {board.like.name}" if board.like is not None else ""
        raise UsageError(Problem("E5300", message + twin))
    machine = ["-M", board.machine, "-cpu", board.qemu_cpu, "-icount", "shift=0,sleep=off"]
    return [*machine, "-display", "none", "-monitor", "none", *console, "-kernel"]
